"""Runs the checks in the order of the report.

Called by `cli`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection

from plimsoll_operator.preflight import (
    append_latency,
    cluster_checks,
    installed_checks,
    right_checks,
    webhook_checks,
)
from plimsoll_operator.preflight.facts import Verdict, Wishes
from plimsoll_operator.preflight.gather import Gatherer
from plimsoll_operator.preflight.rights import (
    CERTIFICATES,
    POD_MONITORS,
    READ_NODES,
    TLS_ROUTES,
    VERIFICATION,
)

FAIRNESS_VALUE = "priorityAndFairness.enabled"
VALUES = {
    READ_NODES: True,
    VERIFICATION: False,
    POD_MONITORS: False,
    TLS_ROUTES: False,
    CERTIFICATES: False,
    FAIRNESS_VALUE: True,
}
"""The chart's values that change a check, and what they are unless `--set` says otherwise."""

BEFORE = (
    cluster_checks.VERSION,
    cluster_checks.STORAGE,
    right_checks.RIGHTS,
    cluster_checks.FAIRNESS,
    webhook_checks.WEBHOOKS,
    append_latency.LATENCY,
)
"""Checks before an installation."""
AFTER = (installed_checks.KINDS, installed_checks.OPERATOR)
"""Checks of an installed release."""
CHECKS = (*BEFORE, *AFTER)


async def verdicts(gatherer: Gatherer, wishes: Wishes, wanted: Collection[str]) -> list[Verdict]:
    """Return the verdicts of the checks in `wanted`, a part of `CHECKS`. An unreadable fact raises
    nothing."""

    async def version() -> Verdict:
        return cluster_checks.version(await gatherer.version())

    async def storage() -> Verdict:
        return cluster_checks.storage(await gatherer.storage_classes(), wishes.storage_class)

    async def rights() -> Verdict:
        return right_checks.rights(await gatherer.permissions())

    async def fairness() -> Verdict:
        return cluster_checks.fairness(await gatherer.priority_and_fairness())

    async def webhooks() -> Verdict:
        return webhook_checks.webhooks(await gatherer.webhooks())

    async def latency() -> Verdict:
        return append_latency.latency(await gatherer.appends())

    async def kinds() -> Verdict:
        return installed_checks.kinds(await gatherer.kinds())

    async def operator() -> Verdict:
        return installed_checks.operator(await gatherer.operators(), wishes.namespace)

    steps: tuple[Callable[[], Awaitable[Verdict]], ...] = (
        version, storage, rights, fairness, webhooks, latency, kinds, operator,
    )  # fmt: skip
    by_name = dict(zip(CHECKS, steps, strict=True))
    return [await by_name[name]() for name in CHECKS if name in wanted]
