"""Reconciles a Rebalance: plans it, shows the plan, begins it once approved, and follows it to its
end.

A Rebalance that has begun and its remaining moves are in the metadata log. So it continues after a
restart of the operator, and a deleted object is found by its committed row. A fresh read proves the
deletion. A plan that has not begun is in memory only, and is made again whenever the cluster has
changed.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

import msgspec

from plimsoll_core.cluster.model import Rebalance as Row
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.moves import RebalanceObjectGone, RebalanceState
from plimsoll_core.messages.requests import Refused
from plimsoll_core.planner.rebalance import Planned
from plimsoll_core.planner.traffic_capacity import TrafficCapacity
from plimsoll_operator.api.conditions import has_ended, timestamp
from plimsoll_operator.api.quantities import bytes_per_second
from plimsoll_operator.api.rebalance import PlanStatus, Rebalance, RebalanceStatus
from plimsoll_operator.kube.errors import ApiError, NotFound
from plimsoll_operator.kube.resources import CONFIG_MAPS, REBALANCES
from plimsoll_operator.kube.seen_objects import Key
from plimsoll_operator.reconcile.pass_result import PassResult
from plimsoll_operator.reconcile.rebalance.planning import (
    Deciding,
    RebalancePass,
    RebalancePlanning,
    Sketch,
)
from plimsoll_operator.reconcile.rebalance.rebalance_status import FINAL, View, status_of
from plimsoll_operator.reconcile.rebalance.shown_plan import (
    config_map,
    config_map_name,
    plan_status,
)
from plimsoll_operator.reconcile.reconcile_term import Task, Term, Work
from plimsoll_operator.reconcile.work_queue import UNLESS_LASTING, Retry
from plimsoll_operator.status.copy_meter import Meter
from plimsoll_operator.status.events import Occurrence, about_seen
from plimsoll_operator.status.status_writer import Target

LOOK_MS = 1_000
AWAIT_MS = 15_000
REFUSED_MS = 5_000
HASHES_MAX = 100
"""Number of hashes of shown plans that are kept for each Rebalance, to tell an outdated approval
from a typing error."""


@dataclass(slots=True)
class RebalanceMemory:
    """State about the cluster's Rebalances that a term keeps between passes, by the uids of their
    objects."""

    rebalancing: RebalancePlanning
    # The plan that the status shows, and the hashes of the plans that were shown.
    plans: dict[str, PlanStatus] = field(default_factory=dict)
    hashes: dict[str, deque[str]] = field(default_factory=dict)
    # Progress of the copies.
    meters: dict[str, Meter] = field(default_factory=dict)

    def forget(self, uid: str) -> None:
        """Forget everything about a deleted object."""
        self.rebalancing.forget(uid)
        self.plans.pop(uid, None)
        self.hashes.pop(uid, None)
        self.meters.pop(uid, None)


def rebalances_of(term: Term) -> RebalanceMemory:
    return term.kept(RebalanceMemory, lambda: RebalanceMemory(_rebalancing(term)))


def _rebalancing(term: Term) -> RebalancePlanning:
    controller = term.controller
    return RebalancePlanning(
        Deciding(
            image=lambda: term.image,
            soft=lambda: controller.soft,
            settings=lambda: controller.settings,
            now_ms=lambda: controller.now_ms,
            wall_ms=term.now_ms,
            ask=term.ask,
            traffic=lambda: traffic_of(term),
        )
    )


def traffic_of(term: Term) -> dict[BrokerId, TrafficCapacity]:
    """Return the traffic that brokers can carry, as far as their pools declare it."""
    cluster = term.cluster
    return {} if cluster is None else cluster.traffic_capacities(term.image.brokers)


async def reconcile(term: Term, key: Key) -> PassResult:
    with PassResult() as result:
        await _reconcile(term, result, key)
    return result


async def _reconcile(term: Term, result: PassResult, key: Key) -> None:
    found, target = term.objects.rebalances.get(key), Target(REBALANCES, *key)
    going = found is None or found.metadata.deletion_timestamp is not None
    for row in _rows(term, key):
        if going or found is None or row.object.uid != found.metadata.uid:
            await _forget(term, row)
    if found is None or going:
        result.show_no_more(target)
        _prune(term)
        return
    if found.cluster_key != term.key or term.cluster is None:
        return
    if found.metadata.uid not in term.image.rebalances and has_ended(
        term.objects.rebalances.conditions(key)
    ):
        return  # it ran in an earlier cluster of this name; it runs once
    seen = await rebalances_of(term).rebalancing.look(found)
    plan = await _plan(term, found, seen.sketch)
    status = status_of(found, _view(term, found, seen, plan))
    _tell_who_approves(term, result, found, status)
    result.show(target, found.metadata.generation, status)
    if isinstance(seen.answer, Refused):
        raise Retry(seen.answer.message, after_ms=REFUSED_MS)
    if status.phase in FINAL:
        rebalances_of(term).rebalancing.forget(found.metadata.uid)
    else:
        result.add_later(Work(Task.REBALANCE, key), AWAIT_MS if seen.answer is None else LOOK_MS)


def abandoned(term: Term) -> list[Key]:
    """Return the keys of committed Rebalances with an object that the watches no longer see."""
    keys = [(row.object.namespace, row.object.name) for row in term.image.rebalances.values()]
    return [key for key in keys if term.objects.rebalances.get(key) is None]


def _tell_who_approves(
    term: Term, result: PassResult, found: Rebalance, status: RebalanceStatus
) -> None:
    """Write one Event for each plan that waits for approval, since the operator proposes plans for
    a cluster that grows without being asked."""
    plan = status.plan
    if status.phase != "AwaitingApproval" or plan is None:
        return
    before = term.shown.status_of(Target(REBALANCES, *found.key), RebalanceStatus)
    if before is not None and before.plan is not None and before.plan.hash == plan.hash:
        return
    moves, name = plan.moves, found.metadata.name
    copies = f"{moves.replicas} replicas and {moves.leaders} leaders move, {moves.bytes} are copied"
    # Omit the hash: an Event is not updated, and other moves change the plan.
    result.tell(
        Occurrence(
            key=f"rebalance-{found.metadata.uid}-waits",
            reason="RebalanceAwaitsApproval",
            message=f"Rebalance {name} waits for approval: set spec.approvedPlan to the hash in "
            f"status.plan.hash ({copies}).",
            about=about_seen(REBALANCES.kind, found.metadata),
        )
    )


def _view(term: Term, found: Rebalance, seen: RebalancePass, plan: PlanStatus | None) -> View:
    memory = rebalances_of(term)
    return View(
        image=term.image,
        answer=seen.answer,
        plan=plan,
        planned=None if seen.sketch is None else seen.sketch.planned,
        meter=memory.meters.setdefault(found.metadata.uid, Meter()),
        seen=(term.controller.soft.copies, term.monotonic_ms()),
        shown=memory.hashes.get(found.metadata.uid, ()),
        wall_ms=term.now_ms(),
    )


# --- the plan that is shown ---------------------------------------------------------------------


async def _plan(term: Term, found: Rebalance, sketch: Sketch | None) -> PlanStatus | None:
    """Return the plan to show in the status. That is the one in `sketch`, else the shown one if it
    has begun. Return None if there is neither."""
    uid, memory = found.metadata.uid, rebalances_of(term)
    shown = memory.plans.get(uid)
    planned = sketch.planned if sketch is not None else None
    if sketch is not None and isinstance(planned, Planned):
        made = (planned.hash, timestamp(sketch.made_ms))
        if shown is None or (shown.hash, shown.computed_time) != made:
            details = None if shown is None else shown.details_config_map
            if shown is None or shown.hash != planned.hash:
                details = await _write_details(term, found, planned)
            throttle = found.spec.throttle
            rate = term.image.movement_bytes_per_second
            if throttle is not None:
                rate = bytes_per_second(throttle.bytes_per_second)
            shown = plan_status(term.image, planned, rate, sketch.made_ms, details)
            memory.plans[uid] = shown
            hashes = await _hashes(term, found)
            if shown.hash not in hashes:
                hashes.append(shown.hash)
        return shown
    row = term.image.rebalances.get(uid)
    if shown is None and row is not None and row.plan_hash:
        before = await _shown_before(term, found)
        if before is not None and before.hash == row.plan_hash:
            shown = memory.plans[uid] = before
    return shown


async def _hashes(term: Term, found: Rebalance) -> deque[str]:
    """Return the hashes of the plans shown in this term, and the last one of the previous term,
    which may have been approved meanwhile."""
    shown = rebalances_of(term).hashes
    hashes = shown.get(found.metadata.uid)
    if hashes is None:
        hashes = shown[found.metadata.uid] = deque(maxlen=HASHES_MAX)
        if found.spec.approved_plan and (before := await _shown_before(term, found)):
            hashes.append(before.hash)
    return hashes


async def _shown_before(term: Term, found: Rebalance) -> PlanStatus | None:
    """Return the plan in the object's stored status, which the previous term wrote, or None. It
    stays shown, and its approval is recognised."""
    try:
        body = await term.kube.get(REBALANCES, *found.key)
        return msgspec.convert((body.get("status") or {}).get("plan"), PlanStatus)
    except (ApiError, msgspec.ValidationError):
        return None


async def _write_details(term: Term, found: Rebalance, planned: Planned) -> str | None:
    """Write the ConfigMap with the plan's rows and return its name. Return None if the plan moves
    nothing, or the ConfigMap has another owner and is not overwritten. Raise Retry if the API
    server fails."""
    meta = found.metadata
    name = config_map_name(meta.name)
    if planned.plan.nothing_to_do:
        return None
    try:
        try:
            known = await term.kube.get(CONFIG_MAPS, meta.namespace, name)
        except NotFound:
            known = None
        if known is not None and not _owned(known, meta.uid):
            return None
        await term.kube.apply(CONFIG_MAPS, config_map(meta, term.image, planned))
    except ApiError as error:
        text = (
            f"the operator cannot write the plan of Rebalance {meta.namespace}/{meta.name} to "
            f"ConfigMap {name}; {UNLESS_LASTING}: {error}"
        )
        raise Retry(text, after_ms=REFUSED_MS) from error
    return name


def _owned(body: dict[str, object], uid: str) -> bool:
    meta = body["metadata"]
    owners = meta.get("ownerReferences") if isinstance(meta, dict) else None
    return any(owner.get("uid") == uid for owner in owners or ())


# --- objects that are gone ----------------------------------------------------------------------


def _prune(term: Term) -> None:
    """Forget plans of objects that were deleted before their plan began."""
    memory = rebalances_of(term)
    known = {found.metadata.uid for found in term.objects.rebalances}
    for uid in [uid for uid in memory.rebalancing.sketches if uid not in known]:
        memory.forget(uid)


def _rows(term: Term, key: Key) -> list[Row]:
    rows = term.image.rebalances.values()
    return [row for row in rows if (row.object.namespace, row.object.name) == key]


async def _forget(term: Term, row: Row) -> None:
    """Ask the controller to roll back and forget a committed Rebalance, if a read of the API server
    proves that its object is deleted."""
    if await _exists(term, row):
        return
    answer = await term.ask(RebalanceObjectGone(object=row.object, wall_ms=term.now_ms()))
    if isinstance(answer, Refused | RebalanceState) and answer.reason:
        raise Retry(answer.message, after_ms=LOOK_MS)
    rebalances_of(term).forget(row.object.uid)


async def _exists(term: Term, row: Row) -> bool:
    """Return True if the object with this uid exists and is not being deleted. Raise Retry if it
    cannot be read."""
    try:
        found = await term.kube.get(REBALANCES, row.object.namespace, row.object.name)
    except NotFound:
        return False
    except ApiError as error:
        text = (
            "the operator cannot ask the API server if Rebalance "
            f"{row.object.namespace}/{row.object.name} is deleted; {UNLESS_LASTING}: {error}"
        )
        raise Retry(text) from error
    meta = found["metadata"]
    return meta["uid"] == row.object.uid and not meta.get("deletionTimestamp")
