"""The only switch: which rule answers which request.

Called by the controller's runtime and the simulator, with the image that includes everything
queued.  Decides nothing itself.  A refusal leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plimsoll_core import member_messages as members
from plimsoll_core import messages as m
from plimsoll_core import move_messages as moves
from plimsoll_core import rebalance_messages as rebalances
from plimsoll_core.controller.activation import activate
from plimsoll_core.controller.alter_partition import alter_partition
from plimsoll_core.controller.declarations import declare, detach
from plimsoll_core.controller.deletion import object_gone
from plimsoll_core.controller.elections import elect_leaders, name_leaders
from plimsoll_core.controller.heartbeat import heartbeat
from plimsoll_core.controller.leaving import set_leaving
from plimsoll_core.controller.liveness import proven_dead
from plimsoll_core.controller.membership import (
    set_members,
    settle_newcomers,
    unregister,
    volume_gone,
)
from plimsoll_core.controller.movement import limit, report_copies
from plimsoll_core.controller.producer_ids import allocate
from plimsoll_core.controller.reassignment import alter_reassignments
from plimsoll_core.controller.reassignment_objects import object_gone as reassignment_gone
from plimsoll_core.controller.reassignment_objects import run
from plimsoll_core.controller.rebalance_begin import begin as begin_rebalance
from plimsoll_core.controller.rebalance_objects import object_gone as rebalance_gone
from plimsoll_core.controller.rebalance_objects import run as run_rebalance
from plimsoll_core.controller.recovery import report
from plimsoll_core.controller.registration import register
from plimsoll_core.controller.restarts import request_restart, withdraw_restart
from plimsoll_core.controller.storage import report_failed
from plimsoll_core.controller.tick import tick
from plimsoll_core.controller.topics import create_topics, delete_topics
from plimsoll_core.controller.turn import Decision, Settings, Soft, Turn
from plimsoll_core.election_messages import ElectLeaders, NameLeaders
from plimsoll_core.model import ClusterImage
from plimsoll_core.reasons import Refusal
from plimsoll_core.roll_messages import RequestRestart, WithdrawRestart

__all__ = ["Decision", "Settings", "Soft", "decide", "refused"]

_RULES: dict[type, Callable[[Turn, Any], m.Answer | Refusal]] = {
    m.RegisterBroker: register,
    m.Heartbeat: heartbeat,
    m.AlterPartition: alter_partition,
    m.AllocateProducerIds: allocate,
    m.ReportReplicaLogs: report,
    m.ReportFailedReplicas: report_failed,
    m.CreateTopics: create_topics,
    m.DeleteTopics: delete_topics,
    ElectLeaders: elect_leaders,
    m.DeclareTopic: declare,
    m.TopicObjectGone: object_gone,
    m.DetachTopic: detach,
    NameLeaders: name_leaders,
    moves.AlterReassignments: alter_reassignments,
    moves.RunReassignment: run,
    moves.ReassignmentObjectGone: reassignment_gone,
    rebalances.BeginRebalance: begin_rebalance,
    rebalances.RunRebalance: run_rebalance,
    rebalances.RebalanceObjectGone: rebalance_gone,
    moves.LimitMovement: limit,
    moves.ReportCopies: report_copies,
    m.SetMembers: set_members,
    members.SetLeaving: set_leaving,
    members.UnregisterBroker: unregister,
    members.SettleNewcomers: settle_newcomers,
    members.VolumeGone: volume_gone,
    m.Activated: activate,
    m.Tick: tick,
    m.BrokerProvenDead: proven_dead,
    RequestRestart: request_restart,
    WithdrawRestart: withdraw_restart,
}


def decide(
    image: ClusterImage, soft: Soft, request: m.Request, now_ms: int, settings: Settings
) -> Decision:
    """What to commit for a request, and what to answer after that."""
    turn = Turn(image=image, soft=soft, now_ms=now_ms, settings=settings)
    answer = _RULES[type(request)](turn, request)
    if isinstance(answer, Refusal):
        assert not turn.records, "a refused request changes nothing"
        return Decision(image=image, answer=refused(answer))
    # It would be decided again at once and for ever, and nobody else be heard meanwhile.
    assert turn.records or turn.again is None or turn.again != request, f"no progress: {request}"
    return Decision(
        records=tuple(turn.records),
        image=turn.image,
        answer=answer,
        again=turn.again,
        hand_over=turn.hand_over,
    )


def refused(refusal: Refusal) -> m.Refused:
    """A refusal as it goes over the wire."""
    return m.Refused(reason=refusal.reason.name, code=refusal.reason.code, message=refusal.message)
