"""The only switch: which rule answers which request.

Called by the controller's runtime and the simulator, with the image that includes everything
queued.  Decides nothing itself.  A refusal leaves nothing behind.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.controller.brokers.declared_listeners import declare_listeners
from plimsoll_core.controller.brokers.decommissioning import set_leaving
from plimsoll_core.controller.brokers.fencing import proven_dead
from plimsoll_core.controller.brokers.heartbeat import heartbeat
from plimsoll_core.controller.brokers.membership import set_members, settle_newcomers
from plimsoll_core.controller.brokers.producer_id_blocks import allocate
from plimsoll_core.controller.brokers.registration import register
from plimsoll_core.controller.brokers.restart_grants import request_restart, withdraw_restart
from plimsoll_core.controller.brokers.unregistration import unregister, volume_gone
from plimsoll_core.controller.kernel.decision import Decision, DecisionContext
from plimsoll_core.controller.kernel.settings import Settings
from plimsoll_core.controller.kernel.volatile_state import VolatileState
from plimsoll_core.controller.moves.copy_reports import report_copies
from plimsoll_core.controller.moves.declared_movement_limit import limit
from plimsoll_core.controller.moves.partition_move import alter_reassignments
from plimsoll_core.controller.moves.reassignment_object import object_gone as reassignment_gone
from plimsoll_core.controller.moves.reassignment_object import run
from plimsoll_core.controller.moves.rebalance_begin import begin as begin_rebalance
from plimsoll_core.controller.moves.rebalance_object import object_gone as rebalance_gone
from plimsoll_core.controller.moves.rebalance_object import run as run_rebalance
from plimsoll_core.controller.partitions.alter_partition import alter_partition
from plimsoll_core.controller.partitions.failed_logs import report_failed
from plimsoll_core.controller.partitions.named_leaders import name_leaders
from plimsoll_core.controller.partitions.requested_elections import elect_leaders
from plimsoll_core.controller.partitions.unclean_recovery import report
from plimsoll_core.controller.periodic import tick
from plimsoll_core.controller.security.acl_changes import create_acls, delete_acls
from plimsoll_core.controller.security.client_authorities import declare_client_authorities
from plimsoll_core.controller.security.declared_users import (
    declare_authorization,
    declare_user,
    user_object_gone,
    user_object_seen,
)
from plimsoll_core.controller.security.inside_modes import allow_certificates, set_inside_mode
from plimsoll_core.controller.security.quota_changes import alter_quotas, declare_quotas
from plimsoll_core.controller.security.reauthorization import refused_again
from plimsoll_core.controller.security.scram_changes import alter_scram
from plimsoll_core.controller.security.token_issuers import declare_token_issuers
from plimsoll_core.controller.take_over import activate
from plimsoll_core.controller.topics.client_partitions import add_partitions
from plimsoll_core.controller.topics.client_topics import create_topics, delete_topics
from plimsoll_core.controller.topics.config_changes import alter_configs
from plimsoll_core.controller.topics.declared_topics import declare, detach
from plimsoll_core.controller.topics.deletion_grace import object_gone
from plimsoll_core.controller.topics.internal_topics import ensure_internal_topic
from plimsoll_core.errors import Refusal
from plimsoll_core.messages import membership as members
from plimsoll_core.messages import reassignments as moves
from plimsoll_core.messages import rebalances, security
from plimsoll_core.messages import requests as m
from plimsoll_core.messages.elections import ElectLeaders, NameLeaders
from plimsoll_core.messages.inside import AllowCertificates, SetInsideMode
from plimsoll_core.messages.internal_topics import EnsureInternalTopic
from plimsoll_core.messages.listeners import DeclareListeners
from plimsoll_core.messages.restarts import RequestRestart, WithdrawRestart
from plimsoll_core.messages.topic_changes import AddPartitions, AlterTopicConfigs

__all__ = ["Decision", "Settings", "VolatileState", "decide", "refused"]

_RULES: dict[type, Callable[[DecisionContext, Any], m.Answer | Refusal]] = {
    m.RegisterBroker: register,
    m.Heartbeat: heartbeat,
    m.AlterPartition: alter_partition,
    m.AllocateProducerIds: allocate,
    m.ReportReplicaLogs: report,
    m.ReportFailedReplicas: report_failed,
    m.CreateTopics: create_topics,
    m.DeleteTopics: delete_topics,
    AlterTopicConfigs: alter_configs,
    AddPartitions: add_partitions,
    EnsureInternalTopic: ensure_internal_topic,
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
    security.CreateAcls: create_acls,
    security.DeleteAcls: delete_acls,
    security.AlterScramCredentials: alter_scram,
    security.AlterQuotas: alter_quotas,
    security.DeclareQuotas: declare_quotas,
    security.DeclareAuthorization: declare_authorization,
    security.DeclareTokenIssuers: declare_token_issuers,
    security.DeclareClientAuthorities: declare_client_authorities,
    security.DeclareUser: declare_user,
    security.UserObjectSeen: user_object_seen,
    security.UserObjectGone: user_object_gone,
    DeclareListeners: declare_listeners,
    SetInsideMode: set_inside_mode,
    AllowCertificates: allow_certificates,
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
    image: ClusterImage, soft: VolatileState, request: m.Request, now_ms: int, settings: Settings
) -> Decision:
    """What to commit for a request, and what to answer after that."""
    turn = DecisionContext(image=image, soft=soft, now_ms=now_ms, settings=settings)
    answer = refused_again(image, request) or _RULES[type(request)](turn, request)
    if isinstance(answer, Refusal):
        assert not turn.records, "a refused request changes nothing"
        return Decision(image=image, answer=refused(answer))
    # It would be decided again at once and for ever, before any other request.
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
