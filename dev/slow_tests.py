"""Which unit tests `make quick` leaves out: those that `dev/slow_tests.txt` names.

A test function is slow when all its cases together take over `SLOW_S` seconds of processor time, of
the test and of its children, so that a busy machine measures the same as an idle one.
`python -m dev.slow_tests` (`make slow-tests`) runs the whole unit tier and writes the file anew;
with paths of test files, those, and writes anew what it says of them.
As a pytest plugin (`-p dev.slow_tests`) it deselects them, but for those in files that differ from
branch main: whoever edits a slow test runs it.
"""

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

import pytest
from dev.tier_lanes import TIERS

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "dev" / "slow_tests.txt"
(UNIT,) = (tier.selection(long=False) for tier in TIERS if tier.name == "unit")
SLOW_S = 0.5
HEADER = (
    f"# Processor seconds, and the test functions of the unit tier that take over {SLOW_S}.\n"
    "# Written by `make slow-tests`; read by `make quick`, which leaves them out.\n"
)


def function_of(node_id: str) -> str:
    """A test's name without its case: one entry stands for all its parameters."""
    return node_id.partition("[")[0]


def seconds_of(text: str) -> dict[str, float]:
    """Return the seconds in the file, by function."""
    lines = (line for line in text.splitlines() if line and not line.startswith("#"))
    return {name: float(took) for took, name in (line.split(maxsplit=1) for line in lines)}


def listed(text: str) -> frozenset[str]:
    """The functions that the file names."""
    return frozenset(seconds_of(text))


def told_anew(text: str, files: Collection[str], seconds: Mapping[str, float]) -> str:
    """The file's content, after the tests of some files were measured again; none: of all."""
    kept = seconds_of(text) if files else {}
    others = {name: took for name, took in kept.items() if name.partition("::")[0] not in files}
    return written(seconds, others)


def written(seconds: Mapping[str, float], others: Mapping[str, float] | None = None) -> str:
    """The file's content, given the processor seconds of each function, and what it said of those
    that were not measured."""
    slow = {name: took for name, took in seconds.items() if took > SLOW_S} | dict(others or {})
    return HEADER + "".join(f"{slow[name]:6.1f} {name}\n" for name in sorted(slow))


def left_out(node_ids: Collection[str], slow: Collection[str], edited: Collection[str]) -> set[str]:
    """Those of the tests that are slow and lie in no edited file (paths from the top)."""
    return {
        node_id
        for node_id in node_ids
        if function_of(node_id) in slow and node_id.partition("::")[0] not in edited
    }


def edited_files() -> frozenset[str]:
    """Files that differ from where this branch left main, committed or not."""
    base = _git("merge-base", "HEAD", "main") or ["HEAD"]
    changed = _git("diff", "--name-only", base[0])
    return frozenset([*changed, *_git("ls-files", "--others", "--exclude-standard")])


def _git(*arguments: str) -> list[str]:
    """Return git's output by lines; none if git refuses, as in a clone without a branch main."""
    done = subprocess.run(
        ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False, timeout=60
    )
    return done.stdout.split()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    out = left_out([item.nodeid for item in items], listed(FILE.read_text()), edited_files())
    config.hook.pytest_deselected(items=[item for item in items if item.nodeid in out])
    items[:] = [item for item in items if item.nodeid not in out]


class Measured:
    """A pytest plugin that sums the processor time of each test function."""

    def __init__(self) -> None:
        # Seconds by function, all its cases.
        self.seconds: Counter[str] = Counter()

    @pytest.hookimpl(hookwrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        began = processor_s()
        yield
        self.seconds[function_of(item.nodeid)] += processor_s() - began  # type: ignore[assignment]


def processor_s() -> float:
    """Return the processor time of this process and of its children that have ended."""
    return sum(os.times()[:4])


def main(files: Sequence[str]) -> int:
    """Write the file; refused when a test failed, since its time is not that of the whole test."""
    measured = Measured()
    code = pytest.main(["-q", "--no-header", "-m", UNIT, *(files or ["tests"])], plugins=[measured])
    if code != pytest.ExitCode.OK:
        print(f"{FILE.relative_to(ROOT)} stays as it is: not every test passed")
        return int(code)
    FILE.write_text(told_anew(FILE.read_text(), files, measured.seconds))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
