"""Creates a Rebalance of mode Load once brokers have been loaded unevenly for long.

The LogCluster asks for it (`movement.evenLoad`). Once a minute a thread looks for
the first step of a plan, by the rules of the Rebalance. If there is one, the load is uneven. If the
load is uneven for the stated time, while no member comes or leaves and nothing moves, a Rebalance
is created, which works like any other. The time begins anew in each controller term, and after each
such Rebalance.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from plimsoll_core.cluster.record_versions import LOAD_SINCE
from plimsoll_core.controller.moves.target_choice import measured
from plimsoll_core.planner.plan import load_is_uneven
from plimsoll_core.planner.rebalance import PlanRequest, question
from plimsoll_core.planner.request import EvenLoad
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.manifests import rebalance
from plimsoll_operator.manifests.manifest_context import Context
from plimsoll_operator.reconcile.cluster import drain_and_fill
from plimsoll_operator.reconcile.pass_result import PassResult
from plimsoll_operator.reconcile.reconcile_term import Task, Term, Work

LOOK_MS = 60_000
"""The time between two looks at the load, in milliseconds."""


@dataclass
class _Imbalance:
    """What this term has seen: the time (ms) of the last look, and since when the load has been
    uneven; None if it is even."""

    looked_ms: int | None = None
    since_ms: int | None = None


async def reconcile(term: Term, result: PassResult, cluster: LogCluster, context: Context) -> None:
    """Look at the load if it is time, and create a Rebalance if it has been uneven for long."""
    seen, wish = term.kept(_Imbalance, _Imbalance), cluster.even_load
    if wish.mode in (None, "Off") or term.image.metadata_version < LOAD_SINCE:
        seen.since_ms = seen.looked_ms = None
        return
    now_ms = term.monotonic_ms()
    if seen.looked_ms is not None and now_ms - seen.looked_ms < LOOK_MS:
        result.add_later(Work(Task.CLUSTER, term.key), LOOK_MS - (now_ms - seen.looked_ms))
        return
    seen.looked_ms = now_ms
    result.add_later(Work(Task.CLUSTER, term.key), LOOK_MS)
    if not _is_settled(term) or not await _is_uneven(term, wish.goal):
        seen.since_ms = None
        return
    if seen.since_ms is None:
        seen.since_ms = now_ms
    if now_ms - seen.since_ms < wish.lasting_ms:
        return
    if await drain_and_fill.create_even(term, context, rebalance.even(context, wish)):
        seen.since_ms = None


def _is_settled(term: Term) -> bool:
    """Return True if nothing is under way that changes the load by itself: no broker joins, leaves
    or is away, and no partition moves."""
    image, soft = term.image, term.controller.soft
    if image.newcomers or image.leaving or soft.moving:
        return False
    return all(b in image.brokers and image.brokers[b].active for b in image.members)


async def _is_uneven(term: Term, goal: EvenLoad) -> bool:
    image, controller = term.image, term.controller
    reported = measured(image, controller.soft, controller.now_ms)
    wish = PlanRequest(
        mode="Load",
        rack_policy=controller.settings.rack_policy,
        sizes=reported.sizes,
        rates=reported.rates,
        even_load=goal,
        disks=reported.disks,
        traffic={} if term.cluster is None else term.cluster.traffic_capacities(image.brokers),
    )
    return await asyncio.to_thread(lambda: load_is_uneven(question(image, wish)))
