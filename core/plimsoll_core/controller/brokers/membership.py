"""Decides the member ids of a cluster. Called for SetMembers, and by the operator to plan that
request.

A broker is removed in steps, each committed before the next: it is marked as leaving
(`broker_removal`), its replicas are moved away, it is no member any more, it stops, it is
unregistered (`broker_removal`). No step is taken that would leave a replica without its broker.

A cluster has one or more pools of brokers, and each pool has a range of ids of its own. A member is
removed only if its id is excluded or lies in no pool, or, if its pool wants fewer members, as the
one with the highest id there. To lift an exclusion removes no member, so that undoing an edit moves
no data. Source: the protocol's rules for removing brokers.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from itertools import count as numbers
from itertools import islice

from plimsoll_core.cluster.records import (
    MembersChanged,
    NewcomersSettled,
)
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.brokers import SettleNewcomers
from plimsoll_core.messages.requests import Answer, Done, SetMembers
from plimsoll_core.phrasing import brokers_text, counted, sentence_start


@dataclass(frozen=True, slots=True)
class IdRange:
    """The wanted number of members (`count`) with ids from `first` to below `stop`. `stop` is None
    if ids have no upper bound."""

    first: int
    stop: int | None
    count: int

    def __contains__(self, number: int) -> bool:
        return self.first <= number and (self.stop is None or number < self.stop)


def next_members(
    current: Collection[BrokerId], ranges: Iterable[IdRange], excluded: Collection[int]
) -> tuple[BrokerId, ...]:
    """Return the ids of a cluster with as many members in each range as it counts: the present ones
    that are not excluded, without the highest if they are too many, and the lowest free ids if they
    are too few."""
    wanted: list[BrokerId] = []
    for one in ranges:
        kept = sorted(b for b in set(current) - set(excluded) if b in one)[: one.count]
        ids = numbers(one.first) if one.stop is None else range(one.first, one.stop)
        free = (BrokerId(n) for n in ids if n not in excluded and n not in kept)
        wanted += [*kept, *islice(free, one.count - len(kept))]
    return tuple(sorted(wanted))


def set_members(turn: DecisionContext, request: SetMembers) -> Answer | Refusal:
    wanted = tuple(sorted(set(request.broker_ids)))
    if not wanted:
        return Refusal(
            reason=Reason.InvalidRequest,
            message=(
                "The spec leaves the cluster no broker, but it needs at least one. To stop the "
                "cluster, delete the LogCluster."
            ),
        )
    if wanted == turn.image.members:
        return Done()
    refusal = _check_dropped(turn, wanted) or _check_new(turn, wanted)
    if refusal:
        return refusal
    turn.add(MembersChanged(cause="declared", broker_ids=wanted))
    return Done()


def _check_dropped(turn: DecisionContext, wanted: Collection[BrokerId]) -> Refusal | None:
    """Refuse if a broker that still holds replicas is not among the wanted members."""
    holding = sorted(broker_id for broker_id in turn.image.hosted if broker_id not in wanted)
    if not holding:
        return None
    count = len(turn.image.hosted[holding[0]])
    return Refusal(
        reason=Reason.BrokerHoldsReplicas,
        message=(
            f"{sentence_start(brokers_text(holding))} cannot be removed yet: broker {holding[0]}"
            f" holds {counted(count, 'replica')}. The operator first moves all replicas to other"
            " brokers and then removes the brokers by itself; nothing needs to be done."
        ),
    )


def _check_new(turn: DecisionContext, wanted: Collection[BrokerId]) -> Refusal | None:
    """Refuse a new member with the id of a broker that is still being removed, as its StatefulSet
    may be deleted at any moment. Refuse also if the volume of an earlier broker with that id is
    still being deleted: the new broker would start on it."""
    image = turn.image
    going = sorted(set(image.brokers).intersection(wanted) - set(image.members))
    if going and image.members:
        who, are = brokers_text(going), "is" if len(going) == 1 else "are"
        return Refusal(
            reason=Reason.BrokerLeaving,
            message=(
                f"{sentence_start(who)} cannot join the cluster yet: {who} {are} still being "
                "removed from it. The operator retries when that has ended. To let other brokers "
                f"join instead, exclude {who} (spec.brokers.excludedIds)."
            ),
        )
    early = sorted({*turn.image.released.values()}.intersection(wanted))
    if not early:
        return None
    who = brokers_text(early)
    volumes, are = ("volume", "is") if len(early) == 1 else ("volumes", "are")
    return Refusal(
        reason=Reason.VolumeInUse,
        message=(
            f"{sentence_start(who)} cannot join the cluster yet: the former {volumes} {are} "
            f"still being deleted. The operator retries until {who} can join; nothing needs to "
            "be done."
        ),
    )


def settle_newcomers(turn: DecisionContext, request: SettleNewcomers) -> Answer:
    left = tuple(b for b in turn.image.newcomers if b not in request.broker_ids)
    if left != turn.image.newcomers:
        turn.add(NewcomersSettled(cause="joined", broker_ids=request.broker_ids))
    return Done()
