"""Grants restarts of brokers and ends the grants. Called for RequestRestart and by ticks.

A grant is a record, so the active controller of each term carries it out. It ends by the broker's
return, or by being withdrawn before the broker's pod was touched. Until then the broker counts as
away. Brokers that share no partition at its margin may be away together, but a revision with which
no broker has come back yet is tried on one broker alone: a bad image costs one broker. An open
grant can get another revision, so that a broker that is stuck with a bad one can be helped. A
restart of a broker that is not active repairs it and waits for no maintenance window. Pools may
roll one after another (`staged_rolls`).
"""

from __future__ import annotations

from plimsoll_core.cluster.model import Grant, PartitionKey
from plimsoll_core.cluster.records import RestartEnded, RestartGranted
from plimsoll_core.controller.brokers.staged_rolls import is_in_sync, stage_hold
from plimsoll_core.controller.kernel.availability_margin import away, holds
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.kernel.voluntary_work import VoluntaryWork, hour_hold
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.brokers import RequestRestart, RestartAnswer, Waits, WithdrawRestart
from plimsoll_core.messages.requests import Answer, Done

SUSPENDED = "MaintenanceSuspended"
FIRST = "FirstOfItsRevision"
CAUSE = "restart"


def request_restart(turn: DecisionContext, request: RequestRestart) -> Answer | Refusal:
    image = turn.image
    broker = image.brokers.get(request.broker_id)
    if broker is None and request.broker_id not in image.members:
        return Refusal(
            reason=Reason.BrokerIdNotRegistered,
            message=f"Broker {request.broker_id} cannot be restarted, because the cluster has no "
            "such broker.",
        )
    open_grant = image.grants.get(request.broker_id)
    if open_grant is not None and _same(open_grant, request):
        return RestartAnswer(granted=True)
    waits, total = _waits(turn, request)
    if waits:
        return RestartAnswer(granted=False, total=total, waits=waits)
    turn.add(
        RestartGranted(
            cause=CAUSE,
            broker_id=request.broker_id,
            broker_epoch=None if broker is None else broker.broker_epoch,
            pod_uid=request.pod_uid,
            revision=request.revision,
        )
    )
    return RestartAnswer(granted=True)


def withdraw_restart(turn: DecisionContext, request: WithdrawRestart) -> Answer:
    """End the broker's grant if it is the one that the request names by pod and revision. Another
    grant of the broker stays."""
    grant = turn.image.grants.get(request.broker_id)
    if grant and (grant.pod_uid, grant.revision) == (request.pod_uid, request.revision):
        cause = "its pod runs the wanted revision already"
        turn.add(RestartEnded(cause=cause, broker_id=request.broker_id))
    return Done()


def _same(grant: Grant, request: RequestRestart) -> bool:
    return (grant.pod_uid, grant.revision) == (request.pod_uid, request.revision)


# --- what it waits for --------------------------------------------------------------------------


def _waits(turn: DecisionContext, request: RequestRestart) -> tuple[tuple[Waits, ...], int]:
    image, broker_id = turn.image, request.broker_id
    if turn.settings.maintenance_suspended and broker_id not in image.grants:
        return (Waits(reason=SUSPENDED, until="spec.maintenance.suspended is false"),), 1
    repair = not turn.acceptable(broker_id)
    hold = hour_hold(turn.settings.hours, VoluntaryWork.RESTART, urgent=repair)
    if hold is not None and broker_id not in image.grants:
        return (Waits(reason=hold.reason.name, until=hold.until),), 1
    if broker_id not in image.grants and (early := stage_hold(turn, request)) is not None:
        return (early,), 1
    if (alone := _must_be_alone(turn, request)) is not None:
        return (alone,), 1
    absent = (away(image) | turn.soft.leaving | _silent(turn)) - {broker_id}
    failed = _failed(turn, broker_id)
    found = holds(image, broker_id, absent, turn.settings.exposed_topics, failed)
    waits = tuple(
        Waits(reason=hold.reason, until=hold.until, topic=hold.topic, index=hold.index)
        for hold in found.worst
    )
    return waits, found.total


def _must_be_alone(turn: DecisionContext, request: RequestRestart) -> Waits | None:
    """Return the condition that the restart must wait for, or None. While another broker restarts,
    a restart waits if either is into a revision with which no broker has come back yet."""
    image = turn.image
    others = [grant for b, grant in sorted(image.grants.items()) if b != request.broker_id]
    if not others:
        return None
    untried = [grant for grant in others if grant.revision != image.proven_revision]
    if not untried and request.revision == image.proven_revision:
        return None
    first = untried[0] if untried else others[0]
    until = f"broker {first.broker_id} is back from its restart and in sync everywhere"
    return Waits(reason=FIRST, until=until)


def _silent(turn: DecisionContext) -> set[BrokerId]:
    """Return the brokers that sent no heartbeat for more than half a session timeout, or none in
    this term, so that they may be dead: one may have died with the former controller."""
    half_ms = turn.settings.session_timeout_ms // 2
    return {
        broker_id
        for broker_id, contact in turn.soft.contacts.items()
        if contact.applied_offset is None or turn.now_ms - contact.last_ms > half_ms
    }


def _failed(turn: DecisionContext, broker_id: BrokerId) -> set[PartitionKey]:
    """Return the partitions for which the broker's log is offline. Only a restart brings these logs
    back, so these partitions do not hold the restart back."""
    broker = turn.image.brokers.get(broker_id)
    epoch = None if broker is None else broker.broker_epoch
    return {key for key, by in turn.soft.failed.items() if by.get(broker_id) == epoch}


# --- its end ------------------------------------------------------------------------------------


def end_restarts(turn: DecisionContext) -> None:
    """End the grants of brokers that are back, and of those that are neither registered nor
    members."""
    for broker_id, grant in sorted(turn.image.grants.items()):
        broker = turn.image.brokers.get(broker_id)
        if broker is None:
            if broker_id not in turn.image.members:
                turn.add(RestartEnded(cause="the broker is gone", broker_id=broker_id))
        elif is_back(turn, grant):
            proven = grant.revision if broker.revision == grant.revision else None
            cause = CAUSE if proven is not None else "it runs another revision"
            turn.add(RestartEnded(cause=cause, broker_id=broker_id, proven=proven))


def is_back(turn: DecisionContext, grant: Grant) -> bool:
    """Return True if the broker has registered since the grant, from another pod than the one to be
    deleted, and is active and in the ISR of all its partitions, except those without a leader and
    those to which a move is adding it. A registration from before the grant may be of a process
    that has ended and is not fenced yet."""
    broker = turn.image.brokers.get(grant.broker_id)
    if broker is None or turn.image.restart_granted(broker.id):
        return False
    return broker.broker_epoch != grant.broker_epoch and is_in_sync(turn, broker.id)
