"""Runs the checks in the order of the report, and formats their verdicts for people or programs.

Called by `cli`.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from textwrap import fill

from plimsoll_operator.preflight import checks
from plimsoll_operator.preflight.facts import Verdict, Wishes
from plimsoll_operator.preflight.gather import Gatherer
from plimsoll_operator.preflight.limit_checks import LIMITS_KEPT, limits
from plimsoll_operator.preflight.pool_checks import POOLS, pools
from plimsoll_operator.preflight.rights import (
    CERTIFICATES,
    DRILLS,
    EXECUTORS,
    POD_MONITORS,
    READ_NODES,
    TLS_ROUTES,
    VERIFICATION,
)

COLUMNS = 100
FAIRNESS_VALUE = "priorityAndFairness.enabled"
VALUES = {
    READ_NODES: True,
    VERIFICATION: False,
    EXECUTORS: False,
    DRILLS: False,
    POD_MONITORS: False,
    TLS_ROUTES: False,
    CERTIFICATES: False,
    FAIRNESS_VALUE: True,
}
"""The chart's boolean values that change a check, with the default that holds unless `--set` states
another."""

BEFORE = (
    checks.VERSION,
    checks.STORAGE,
    checks.RIGHTS_HELD,
    checks.FAIRNESS,
    checks.WEBHOOKS,
    checks.LATENCY,
)
"""Checks that can pass before the chart is installed."""
AFTER = (checks.KINDS, checks.OPERATOR)
"""Checks that pass only once the chart is installed."""
OF_FILE = (POOLS, LIMITS_KEPT)
"""Checks of the objects that a file has."""
CHECKS = (*BEFORE, *OF_FILE, *AFTER)


async def verdicts(gatherer: Gatherer, wishes: Wishes, wanted: Collection[str]) -> list[Verdict]:
    """Run the checks named in `wanted`, in the order of `CHECKS`, and return their verdicts. If a
    fact cannot be read, its verdict says so; nothing is raised."""
    return [await _verdict(name, gatherer, wishes) for name in CHECKS if name in wanted]


async def _verdict(check: str, gatherer: Gatherer, wishes: Wishes) -> Verdict:
    match check:
        case checks.VERSION:
            return checks.version(await gatherer.version())
        case checks.STORAGE:
            return checks.storage(await gatherer.storage_classes(), wishes.storage_class)
        case checks.RIGHTS_HELD:
            return checks.rights(await gatherer.permissions())
        case checks.FAIRNESS:
            return checks.fairness(await gatherer.priority_and_fairness())
        case checks.WEBHOOKS:
            return checks.webhooks(await gatherer.webhooks())
        case checks.LATENCY:
            return checks.latency(await gatherer.appends())
        case name if name == POOLS:
            nodes = await gatherer.nodes()
            return pools(wishes.cluster, await gatherer.storage_classes(), nodes)
        case name if name == LIMITS_KEPT:
            return limits(wishes.cluster, wishes.topics, await gatherer.clusters())
        case checks.KINDS:
            return checks.kinds(await gatherer.kinds())
    return checks.operator(await gatherer.operators(), wishes.namespace)


def failed(verdicts: Sequence[Verdict]) -> bool:
    """Return True if a check failed, so that the installation should not go on."""
    return any(one.result == "failed" for one in verdicts)


def lines(verdicts: Sequence[Verdict]) -> str:
    """Return the report for people: a paragraph for each verdict (`ok storage-class StorageClass
    …`), and a last line that counts the results."""
    width = max((len(one.check) for one in verdicts), default=0)
    indent = " " * (len("warning") + width + 4)
    told = [
        fill(
            f"{one.result:<7}  {one.check:<{width}}  {one.message}",
            width=COLUMNS,
            subsequent_indent=indent,
            break_long_words=False,
            break_on_hyphens=False,
        )
        for one in verdicts
    ]
    counts = {
        word: sum(one.result == word for one in verdicts) for word in ("ok", "warning", "failed")
    }
    end = (
        f"Checks: {counts['ok']} ok, {counts['warning']} with a warning, {counts['failed']} failed."
    )
    return "\n".join([*told, end])


def as_json(verdicts: Sequence[Verdict]) -> str:
    """Return the report for programs on one line: `{"ok": bool, "checks": [{"check", "result",
    "message"}]}`."""
    rows = [{"check": one.check, "result": one.result, "message": one.message} for one in verdicts]
    return json.dumps({"ok": not failed(verdicts), "checks": rows})
