"""One shard of groups without a broker: steps are appended, applied and committed at once.

For the tests of the rules.  `ask` answers one operation as a client would hear it; every step is
checked to have changed nothing durable, every record to be read back as it was written, and the
state to equal a replay of the log.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace
from typing import Any
from uuid import UUID

from immutables import Map

from plimsoll_core.cluster.model import ClusterImage, Partition, PartitionKey, Topic
from plimsoll_core.coordination.outcome import RefusedAsWhole, Reply
from plimsoll_core.errors import Code
from plimsoll_core.groups import operations as o
from plimsoll_core.groups.invariants import GroupLog, unsound
from plimsoll_core.groups.operations import Operation
from plimsoll_core.groups.records import (
    GroupRecord,
    GroupStored,
    OffsetCommitted,
    OffsetPending,
    StoredMember,
    TransactionMarked,
)
from plimsoll_core.groups.settings import GroupSettings
from plimsoll_core.groups.state import GroupsState, apply, mark
from plimsoll_core.groups.step import GroupOutcome, due, loaded, step
from plimsoll_core.groups.turn import GroupTurn, SoftState
from plimsoll_core.ids import LeaderEpoch, PartitionEpoch
from plimsoll_wire.coordinator_records import decode_group_record, encode_group_record

WALL_MS = 1_700_000_000_000
FOREVER_MS = 2**31 - 1


def topic_id(name: str) -> UUID:
    return UUID(bytes=name.encode().ljust(16, b"\0")[:16])


def an_image(**topics: int) -> ClusterImage:
    """Topics by name, each with so many partitions."""
    partitions = {
        PartitionKey(topic_id(name), index): Partition(
            topic_id=topic_id(name),
            index=index,
            replicas=(),
            isr=(),
            leader=None,
            leader_epoch=LeaderEpoch(0),
            partition_epoch=PartitionEpoch(0),
            min_isr=1,
        )
        for name, count in topics.items()
        for index in range(count)
    }
    return ClusterImage(
        cluster_id=UUID(int=1),
        topics=Map(
            {
                topic_id(name): Topic(
                    id=topic_id(name), name=name, partitions=count, replication_factor=1, min_isr=1
                )
                for name, count in topics.items()
            }
        ),
        topic_ids=Map({name: topic_id(name) for name in topics}),
        partitions=Map(partitions),
    )


def generation_in(commit: OffsetCommitted) -> int | None:
    """Of commits whose text is "@" and the generation in which they were made."""
    return int(commit.metadata[1:]) if commit.metadata.startswith("@") else None


class CoordinatorModel:
    """`log`: what was written, by its place.  `refuses`: the log takes no record, for this reason.
    `holds`: what is written is not committed until `commit`.  `looks_on`: nothing is checked, for
    tests of very many."""

    def __init__(
        self, image: ClusterImage, settings: GroupSettings | None = None, *, looks_on: bool = False
    ) -> None:
        self.looks_on = looks_on
        self.log: list[GroupRecord | TransactionMarked] = []
        self.answers: list[tuple[object, object]] = []
        self.refuses = Code.NONE
        self.holds = False
        self.thens: list[tuple[Callable[[Code], Operation], Code]] = []
        self.history = GroupLog(generation_in)
        self.wrong: list[str] = []
        self.turn = GroupTurn(
            state=GroupsState(),
            soft=SoftState(),
            settings=settings or GroupSettings(),
            image=image,
            image_is_fresh=True,
            now_ms=1_000,
            wall_ms=WALL_MS,
            believed_ms=WALL_MS,
        )

    def change(self, **values: object) -> None:
        """Another image, another time."""
        self.turn = replace(self.turn, **values)  # type: ignore[arg-type]

    def advance(self, ms: int) -> None:
        """Time passes, and what is due is done."""
        turn = self.turn
        believed = None if turn.believed_ms is None else turn.wall_ms + ms
        self.change(now_ms=turn.now_ms + ms, wall_ms=turn.wall_ms + ms, believed_ms=believed)
        while keys := turn.soft.deadlines.take_due(self.turn.now_ms, 1):
            self.submit(due(keys[0]), None)  # type: ignore[arg-type]

    def submit(self, op: Operation, token: object) -> GroupOutcome:
        before = None if self.looks_on else deepcopy(self.turn.state.groups)
        outcome = step(self.turn, op, token)
        assert self.looks_on or self.turn.state.groups == before, "it changes nothing durable"
        replies = outcome.replies
        code = self.refuses if outcome.records else Code.NONE
        if code is Code.NONE:
            for record in outcome.records:
                commit = record.commit if isinstance(record, OffsetPending) else record
                assert decode_group_record(*encode_group_record(record)) == commit
                self.wrong += self.history.add(record)
                apply(self.turn.state, record, len(self.log))
                self.log.append(record)
        else:
            replies = tuple(Reply(r.token, RefusedAsWhole(code)) for r in replies)
        self.answers += [(r.token, r.answer) for r in (*outcome.at_once, *replies)]
        if outcome.then is not None:
            self.thens.append((outcome.then, code))
            if not self.holds or code is not Code.NONE:
                self.commit()
        if not self.looks_on:
            replayed, state = self.replayed(), self.turn.state
            assert replayed.groups == state.groups
            seats = sum(one.size_bytes for one in self.turn.soft.charged.values())
            assert replayed.memory.used + seats == state.memory.used, "it is miscounted"
            assert [*self.wrong, *unsound(self.turn)] == []
        return outcome

    def commit(self, code: Code = Code.NONE) -> None:
        """What waited for its commit goes on; with `code`, it was waited for in vain."""
        while self.thens:
            then, refused = self.thens.pop(0)
            self.submit(then(refused or code), None)

    def answer(self, token: object) -> object:
        """What it was answered; None: nothing yet; a refusal as its code."""
        found = [answer for asker, answer in self.answers if asker is token]
        assert len(found) <= 1, "a request is answered once"
        if not found:
            return None
        return found[0].code if isinstance(found[0], RefusedAsWhole) else found[0]

    def asked(self, op: Operation) -> object:
        """A token of one that may be parked."""
        token = object()
        self.submit(op, token)
        return token

    def ask(self, op: Operation) -> object:
        """The answer to it; a refusal as its code."""
        token = object()
        self.submit(op, token)
        (answer,) = [answer for asker, answer in self.answers if asker is token]
        return answer.code if isinstance(answer, RefusedAsWhole) else answer

    def replayed(self) -> GroupsState:
        state = GroupsState()
        for offset, record in enumerate(self.log):
            if isinstance(record, TransactionMarked):
                mark(state, record, offset)
            else:
                apply(state, record, offset)
        return state

    def end(self, producer_id: int, *, commits: bool) -> None:
        """The producer's transaction gets its end marker."""
        marker = TransactionMarked(producer_id=producer_id, commits=commits)
        mark(self.turn.state, marker, len(self.log))
        self.log.append(marker)
        assert self.replayed().groups == self.turn.state.groups
        assert self.replayed().pending == self.turn.state.pending

    def fail_over(self) -> None:
        """Another broker loads the log."""
        self.thens.clear()
        self.change(state=self.replayed(), soft=SoftState())
        loaded(self.turn)


# --- operations -----------------------------------------------------------------------------------


def a_commit(*offsets: tuple[str, int, int], group: str = "g", **more: Any) -> o.CommitOffsets:
    rows = tuple(o.PartitionOffset(topic, index, at, 7, "m") for topic, index, at in offsets)
    return o.CommitOffsets(group_id=group, offsets=rows, **more)


def fetched(model: CoordinatorModel, *asked: tuple[str, int], group: str = "g") -> list[int]:
    answer = model.ask(o.FetchOffsets(group_id=group, partitions=asked))
    assert isinstance(answer, o.OffsetsFetched)
    return [one.offset for one in answer.offsets]


def store(model: CoordinatorModel, *members: str, generation: int = 3, state_ms: int = -1) -> None:
    """A generation as a classic group would have stored it."""
    stored = GroupStored(
        group_id="g",
        protocol_type="consumer",
        generation=generation,
        protocol="range" if members else None,
        leader=members[0] if members else None,
        state_ms=state_ms,
        members=tuple(
            StoredMember(
                member_id=name,
                group_instance_id=name.upper() if name.startswith("s") else None,
                client_id="c",
                client_host="h",
                rebalance_timeout_ms=FOREVER_MS,
                session_timeout_ms=FOREVER_MS,
                subscription=b"s",
                assignment=b"a",
            )
            for name in members
        ),
    )
    apply(model.turn.state, stored, len(model.log))
    model.log.append(stored)
    model.turn.soft.classic.clear()
    model.turn.soft.seats = 0


def codes(answer: object) -> list[int]:
    assert isinstance(answer, o.OffsetsCommitted)
    return [int(one.code) for one in answer.partitions]
