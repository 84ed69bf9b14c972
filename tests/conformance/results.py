"""What unmodified clients were seen to do, for the table in `docs/compatibility.md`.

A test names its client and the feature (`@pytest.mark.client(client, feature)`; `{jars}` in a name
stands for the version of Kafka's jars, `both=True` says that the test itself asks Kafka, too).
`--record` writes the outcomes into a file, which `python -m tests.conformance.results` turns into
the table.  Nothing in it depends on when or where it was run.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
RESULTS = Path(__file__).with_name("results.json")
DOCUMENT = ROOT / "docs" / "compatibility.md"
BEGIN, END = "<!-- clients: made by the runs -->", "<!-- clients: end -->"
PEERS = ("plimsoll", "kafka")
FEATURES = (
    "writes and reads",
    "groups",
    "cooperative",
    "static members",
    "restart",
    "member killed",
    "coordinator killed",
    "offsets",
    "topics and configs",
    "TLS",
    "client certificates",
    "OAUTHBEARER",
    "least rights",
    "own suite",
)

# Client, feature, peer -> whether every test of it passed.
Results = dict[str, dict[str, dict[str, bool]]]


class Recorder:
    """A plugin of pytest: `--record` registers it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        # What this run has seen.
        self.seen: Results = {}
        # Client, feature and peers of each cell that a test is of.
        self._of: dict[str, list[tuple[str, str, tuple[str, ...]]]] = {}

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        for item in session.items:
            cells = [cell_of(item, mark) for mark in item.iter_markers("client")]
            if cells:
                self._of[item.nodeid] = cells

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when != "call" and not report.failed:
            return
        for client, feature, peers in self._of.get(report.nodeid, ()):
            outcomes = self.seen.setdefault(client, {}).setdefault(feature, {})
            for peer in peers:
                outcomes[peer] = outcomes.get(peer, True) and report.passed

    def pytest_sessionfinish(self) -> None:
        """What other runs have written stays."""
        found: Results = json.loads(self.path.read_text()) if self.path.exists() else {}
        write(self.path, merged(found, self.seen))


def cell_of(item: pytest.Item, mark: pytest.Mark) -> tuple[str, str, tuple[str, ...]]:
    """Client, feature, and which peers the test asks."""
    client, feature = mark.args
    assert feature in FEATURES, f"{item.nodeid}: {feature} is no column of the table"
    callspec = getattr(item, "callspec", None)
    params = callspec.params if callspec else {}
    if "jars" in params:
        client = client.format(jars=params["jars"].rpartition(".")[0])
    asked = params.get("peer", params.get("peer_name", PEERS[0]))
    peers = PEERS if mark.kwargs.get("both") else (asked,)
    return client, feature, peers


def merged(old: Results, new: Results) -> Results:
    """The new outcome where there is one."""
    return {
        client: {
            feature: {
                **old.get(client, {}).get(feature, {}),
                **new.get(client, {}).get(feature, {}),
            }
            for feature in {**old.get(client, {}), **new.get(client, {})}
        }
        for client in {**old, **new}
    }


def write(path: Path, results: Results) -> None:
    path.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")


def cell(outcomes: Mapping[str, bool]) -> str:
    """`yes` was seen on both; a peer that was not asked is named."""
    if not outcomes:
        return ""
    ours, theirs = (outcomes.get(peer) for peer in PEERS)
    if ours:
        return "yes" if theirs else "yes ¹" if theirs is None else "yes, Kafka no"
    return "no, nor Kafka" if theirs is False else "no"


def table(results: Results) -> str:
    """Client × feature, in Markdown."""
    lines = [f"|client|{'|'.join(FEATURES)}|", "|---" * (len(FEATURES) + 1) + "|"]
    for client in sorted(results, key=str.lower):
        cells = (client, *(cell(results[client].get(feature, {})) for feature in FEATURES))
        lines.append(f"|{'|'.join(cells)}|")
    return "\n".join(lines)


def document(text: str, results: Results) -> str:
    """The text with the table between its marks."""
    head, _, rest = text.partition(BEGIN)
    _, _, tail = rest.partition(END)
    return f"{head}{BEGIN}\n{table(results)}\n{END}{tail}"


if __name__ == "__main__":
    DOCUMENT.write_text(document(DOCUMENT.read_text(), json.loads(RESULTS.read_text())))
