"""Completes, at the beginning of a term, operations that the former controller left unfinished.

Called once for Activated, and again while operations remain. Every broker gets a full session
timeout of grace, since contacts are not in the log."""

from __future__ import annotations

from typing import Literal

from msgspec.structs import replace

from plimsoll_core.cluster.record_versions import SKIPS_SINCE
from plimsoll_core.cluster.records import (
    EPOCHS_SKIPPED,
    ClusterDeclared,
    PartitionsChanged,
    ProducerIdsAllocated,
)
from plimsoll_core.controller.brokers.fencing import leave
from plimsoll_core.controller.brokers.hibernation import resign
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.kernel.partition_change import PartitionUpdate
from plimsoll_core.controller.kernel.volatile_state import Contact
from plimsoll_core.controller.topics.config_changes import spread_min_isr
from plimsoll_core.messages.requests import Activated, Answer, Done

EPOCH_STEPS = 8
"""Epochs that are skipped instead of `EPOCHS_SKIPPED` before the metadata version that has those;
such a log has no backup."""
PRODUCER_IDS_SKIPPED = 1_000_000_000
"""Producer ids that a restored history skips, since lost blocks may have been handed out."""


def activate(turn: DecisionContext, request: Activated) -> Answer:
    if request.restored:
        _skip_lost(turn)
        turn.again = replace(request, restored=False)
        return Done()
    _begin(turn, request)
    if not turn.image.name and request.cluster_name:
        turn.add(
            ClusterDeclared(
                cause="declared", cluster_id=turn.image.cluster_id, name=request.cluster_name
            )
        )
    for broker_id, broker in sorted(turn.image.brokers.items()):
        if not broker.active and not leave(turn, broker_id, _cause(broker.fenced)):
            turn.again = request
            return Done()
        turn.soft.leaving.discard(broker_id)
    if turn.image.hibernated and not resign(turn):
        turn.again = request
        return Done()
    if spread_min_isr(turn, sorted(turn.image.min_isr_behind)):
        turn.again = request
        return Done()
    leaderless = [turn.image.partitions[key] for key in turn.soft.leaderless]
    electable = [p for p in leaderless if any(turn.may_lead(b, p) for b in p.isr or p.elr)]
    now = electable[: turn.settings.slice_partitions_max]
    turn.change([(p, PartitionUpdate()) for p in now], "elected after a take-over")
    if len(now) < len(electable):
        turn.again = request
    return Done()


def _cause(fenced: bool) -> str:
    return "fenced before the take-over" if fenced else "shutdown before the take-over"


def _skip_lost(turn: DecisionContext) -> None:
    """Begin the first term of a history that was restored from brokers' copies: use no leader epoch
    and no producer id that a lost decision may have used."""
    for topic_id, topic in sorted(turn.image.topics.items()):
        if topic.partitions == 0:
            continue
        may_skip = turn.image.metadata_version >= SKIPS_SINCE
        skipped: Literal[0, 1_000_000] = EPOCHS_SKIPPED if may_skip else 0
        record = PartitionsChanged(
            cause="metadata restored",
            topic_id=topic_id,
            ranges=((0, topic.partitions - 1),),
            leader_epoch_step=1,
            epochs_skipped=skipped,
        )
        for _ in range(1 if may_skip else EPOCH_STEPS):
            turn.add(record)
    for broker_id in sorted(turn.image.brokers)[:1]:
        following = turn.image.next_producer_id + PRODUCER_IDS_SKIPPED
        turn.add(
            ProducerIdsAllocated(
                cause="metadata restored", broker_id=broker_id, next_producer_id=following
            )
        )


def _begin(turn: DecisionContext, request: Activated) -> None:
    soft = turn.soft
    for partition in turn.image.partitions.values():
        if partition.leader != partition.replicas[0] or partition.moving:
            soft.saw(partition, turn.now_ms)
    for broker_id, broker in turn.image.brokers.items():
        known = soft.contacts.get(broker_id)
        if known is None or known.broker_epoch != broker.broker_epoch:
            soft.contacts[broker_id] = Contact(
                broker_epoch=broker.broker_epoch, last_ms=turn.now_ms
            )
    if request.second_opinion and soft.second_opinion_until_ms is None:
        soft.second_opinion_until_ms = turn.now_ms + 2 * turn.settings.session_timeout_ms
