"""One shard of transactional ids without a broker: steps are applied and committed at once. Every
record is read back as it was written, and follows from the one before."""

from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from plimsoll_core.coordination.outcome import RefusedAsWhole
from plimsoll_core.errors import Code
from plimsoll_core.ids import ProducerLife, TopicPartition
from plimsoll_core.transactions import operations as o
from plimsoll_core.transactions.invariants import unsound
from plimsoll_core.transactions.memory import TransactionMemory
from plimsoll_core.transactions.parked import OF_ONE_ID, PARKED_MS_MAX
from plimsoll_core.transactions.recent_commits import KEPT_MAX
from plimsoll_core.transactions.records import (
    Status,
    TransactionForgotten,
    TransactionStored,
)
from plimsoll_core.transactions.settings import EPOCH_MAX, TransactionSettings
from plimsoll_core.transactions.state import TransactionsState, apply
from plimsoll_core.transactions.step import due, loaded, settled, step
from plimsoll_core.transactions.turn import SoftTransactions, TransactionTurn
from plimsoll_wire.transaction_records import decode_transaction_record, encode_transaction_record

P0, P1 = TopicPartition("orders", 0), TopicPartition("orders", 1)
WALL_MS = 1_700_000_000_000
PARKED = "parked"


class Model:
    """`ids`: how many producer ids were handed out. `heard`: the answers to requests that
    waited."""

    def __init__(self, memory: TransactionMemory | None = None) -> None:
        self.turn = TransactionTurn(
            state=TransactionsState(memory),
            soft=SoftTransactions(),
            settings=TransactionSettings(),
            now_ms=0,
            wall_ms=WALL_MS,
            believed_ms=WALL_MS,
        )
        self.ids = 0
        self.log: list[Any] = []
        self.heard: list[Any] = []

    def submit(self, op: o.TransactionOperation, token: object) -> Any:
        outcome = step(self.turn, op, token)
        for record in outcome.records:
            self.write(record)
        replies = [reply.answer for reply in (*outcome.at_once, *outcome.replies)]
        answers = [one.code if isinstance(one, RefusedAsWhole) else one for one in replies]
        for waited in self.turn.soft.parked.take_released():
            self.heard.append(self.submit(*waited))
        if token is None:
            self.heard += answers
        if outcome.parked:
            return PARKED
        return answers[0] if answers else None

    def write(self, record: Any) -> None:
        assert decode_transaction_record(*encode_transaction_record(record)) == record
        if isinstance(record, TransactionStored):
            assert not list(unsound(self.stored, record))
        apply(self.turn.state, record, len(self.log))
        self.log.append(record)
        settled(self.turn, record.transactional_id)

    @property
    def stored(self) -> TransactionStored | None:
        return self.turn.state.find("x")

    @property
    def status(self) -> Status:
        assert self.stored is not None
        return self.stored.status

    def pass_ms(self, ms: int) -> None:
        """Time passes, and what is due happens."""
        wall_ms = self.turn.wall_ms + ms
        self.turn = replace(
            self.turn, now_ms=self.turn.now_ms + ms, wall_ms=wall_ms, believed_ms=wall_ms
        )
        for key in self.turn.soft.deadlines.take_due(self.turn.now_ms, 100):
            self.submit(due(key), None)

    # --- clients --------------------------------------------------------------------------------

    def init(self, expected: ProducerLife | None = None, timeout_ms: int = 10_000) -> Any:
        op = o.InitProducer(
            transactional_id="x", timeout_ms=timeout_ms, expected=expected, principal="User:a"
        )
        answer = self.submit(op, "token")
        if isinstance(answer, o.ProducerIdWanted):
            self.ids += 1
            answer = self.submit(replace(op, fresh_id=99 + self.ids), "token")
        return answer.producer if isinstance(answer, o.ProducerInitialized) else answer

    def add(self, life: ProducerLife, *partitions: TopicPartition) -> Any:
        op = o.AddToTransaction(transactional_id="x", producer=life, partitions=partitions)
        return self.submit(op, "token")

    def verify(self, life: ProducerLife, *partitions: TopicPartition) -> Any:
        op = o.VerifyPartitions(transactional_id="x", producer=life, partitions=partitions)
        return self.submit(op, "token")

    def end(self, life: ProducerLife, *, commits: bool = True) -> Any:
        op = o.EndTransaction(transactional_id="x", producer=life, commits=commits)
        return self.submit(op, "token")

    def mark(self) -> list[o.MarkerCode]:
        """All due markers are written; what they were."""
        found = []
        turn = self.turn
        for one in list(turn.soft.markers.due(turn.now_ms, lambda _: True, lambda _: True)):
            codes = [o.MarkerCode(partition, Code.NONE) for partition in one.partitions]
            found += codes
            if turn.soft.markers.heard(one, codes, turn.now_ms):
                self.submit(o.MarkersWritten(transactional_id="x", producer=one.producer), None)
        return found


@pytest.fixture
def model() -> Model:
    return Model()


def begun(model: Model) -> ProducerLife:
    life: ProducerLife = model.init()
    assert model.add(life, P0, P1) == o.PartitionsAdded()
    return life


@pytest.mark.parametrize("commits", [True, False])
def test_transaction_ends_once_all_markers_are_written(model: Model, commits: bool) -> None:
    life = begun(model)
    assert model.end(life, commits=commits) == o.TransactionEnded()
    assert model.end(life, commits=not commits) is Code.INVALID_TXN_STATE
    assert model.end(life, commits=commits) is PARKED
    assert [code.partition for code in model.mark()] == [P0, P1]
    assert model.heard == [o.TransactionEnded()]
    assert model.status is (Status.COMPLETE_COMMIT if commits else Status.COMPLETE_ABORT)
    assert model.end(life, commits=commits) == o.TransactionEnded()
    assert model.end(life, commits=not commits) is Code.INVALID_TXN_STATE


def test_new_instance_fences_older_and_aborts(model: Model) -> None:
    older = begun(model)
    assert model.init() is PARKED
    assert model.status is Status.PREPARE_ABORT
    assert model.end(older) is Code.PRODUCER_FENCED
    model.mark()
    (newer,) = (one.producer for one in model.heard)
    assert newer.producer_id == older.producer_id
    assert newer.epoch > older.epoch + 1, "the epoch of the abort belongs to no instance"
    assert model.add(older, P0) is Code.PRODUCER_FENCED
    assert model.add(ProducerLife(1, 0), P0) is Code.INVALID_PRODUCER_ID_MAPPING


def test_partitions_wait_for_markers_of_previous_transaction(model: Model) -> None:
    life = begun(model)
    model.end(life)
    assert model.add(life, P1) is PARKED
    assert model.init() is PARKED
    model.mark()
    added, initialized = model.heard
    assert added == o.PartitionsAdded(), "the next transaction has begun"
    assert initialized is PARKED, "and the new instance aborts it"
    model.mark()
    assert model.heard[-1].producer.epoch == life.epoch + 2
    model.pass_ms(10_000)
    assert model.heard[3:] == [], "each was answered once"


def test_slow_markers_are_waited_for_briefly(model: Model) -> None:
    life = begun(model)
    model.end(life)
    told = [model.add(life, P1) for _ in range(OF_ONE_ID + 1)]
    assert told == [PARKED] * OF_ONE_ID + [Code.CONCURRENT_TRANSACTIONS]
    model.pass_ms(PARKED_MS_MAX)
    assert model.heard == [Code.CONCURRENT_TRANSACTIONS] * OF_ONE_ID
    model.mark()
    assert model.add(life, P1) == o.PartitionsAdded()


def test_instance_may_abort_its_own_transaction_anew(model: Model) -> None:
    life = begun(model)
    assert model.init(expected=life) is PARKED
    model.mark()
    (told,) = model.heard
    assert told == o.ProducerInitialized(ProducerLife(life.producer_id, life.epoch + 1))
    assert model.init(expected=life) == told.producer, "the answer was lost"
    assert model.init().epoch == life.epoch + 2


def test_last_epoch_aborted_anew_gives_new_producer_id(model: Model) -> None:
    first = model.init()
    assert model.stored is not None
    model.write(structs.replace(model.stored, producer_epoch=EPOCH_MAX))
    last = ProducerLife(first.producer_id, EPOCH_MAX)
    model.add(last, P0)
    assert model.init(expected=last) is PARKED
    model.mark()
    assert model.heard == [o.ProducerIdWanted()]
    second = model.init(expected=last)
    assert second == ProducerLife(first.producer_id + 1, 0)
    assert model.init(expected=last) == second, "the answer was lost"


def fates(model: Model, life: ProducerLife) -> list[o.TransactionFate]:
    op = o.TellFates(transactional_id="x", producer=life, partitions=(P0, P1))
    answer = model.submit(op, "token")
    return [fate for _, fate in answer.fates]


def test_fate_of_partition_is_that_of_last_transaction(model: Model) -> None:
    life = begun(model)
    assert fates(model, life) == [o.TransactionFate.OPEN] * 2
    model.end(life)
    assert fates(model, life) == [o.TransactionFate.OPEN] * 2, "its markers are being written"
    model.mark()
    assert fates(model, life) == [o.TransactionFate.COMMITTED] * 2
    model.add(life, P1)
    assert fates(model, life) == [o.TransactionFate.COMMITTED, o.TransactionFate.OPEN]
    model.end(life, commits=False)
    model.mark()
    assert fates(model, life) == [o.TransactionFate.COMMITTED, o.TransactionFate.ABORTED]
    newer = model.init()
    assert fates(model, newer) == [o.TransactionFate.ABORTED] * 2, (
        "of an epoch that has ended nothing"
    )
    assert fates(model, life) == [o.TransactionFate.COMMITTED, o.TransactionFate.ABORTED]
    unknown = o.TellFates(transactional_id="x", producer=ProducerLife(1, 0), partitions=(P0,))
    assert model.submit(unknown, "token") is Code.INVALID_PRODUCER_ID_MAPPING


def test_id_is_found_by_its_producer_ids(model: Model) -> None:
    first = model.init()
    state = model.turn.state
    assert model.stored is not None
    model.write(structs.replace(model.stored, producer_epoch=EPOCH_MAX))
    second = model.init()
    assert [state.name_of(one) for one in (first.producer_id, second.producer_id)] == ["x", "x"]
    assert fates(model, first) == [o.TransactionFate.ABORTED] * 2
    apply(state, TransactionForgotten(transactional_id="x"), len(model.log))
    assert [state.name_of(one) for one in (first.producer_id, second.producer_id)] == [None, None]


def test_shard_remembers_bounded_number_of_commits(model: Model) -> None:
    many = [TopicPartition("orders", index) for index in range(KEPT_MAX + 2)]
    life = model.init()
    model.add(life, *many)
    model.end(life)
    model.mark()
    commits = model.turn.state.recent_commits
    assert [commits.has(life, one) for one in many] == [False] * 2 + [True] * KEPT_MAX


def test_repeated_request_gets_same_epoch(model: Model) -> None:
    first = model.init()
    second = model.init(expected=first)
    assert second == ProducerLife(first.producer_id, first.epoch + 1)
    assert model.init(expected=first) == second, "the answer was lost"
    third = model.init(expected=second)
    assert model.init(expected=first) is Code.PRODUCER_FENCED
    assert third.epoch == second.epoch + 1


def test_exhausted_epoch_gives_new_producer_id(model: Model) -> None:
    first = model.init()
    assert model.stored is not None
    raised = structs.replace(model.stored, producer_epoch=EPOCH_MAX)
    model.write(raised)
    last = ProducerLife(first.producer_id, EPOCH_MAX)
    second = model.init(expected=last)
    assert second == ProducerLife(first.producer_id + 1, 0)
    assert model.init(expected=last) == second, "the answer was lost"


def test_overdue_transaction_is_aborted_and_fenced(model: Model) -> None:
    life = begun(model)
    model.pass_ms(9_999)
    assert model.status is Status.ONGOING
    model.pass_ms(1)
    assert model.status is Status.PREPARE_ABORT
    assert model.end(life) is Code.PRODUCER_FENCED


def test_load_continues_markers_and_timeouts(model: Model) -> None:
    life = begun(model)
    model.pass_ms(4_000)
    other = Model()
    other.turn = replace(model.turn, soft=SoftTransactions())
    loaded(other.turn)
    assert other.turn.soft.deadlines.earliest_ms() == 10_000, "six seconds are left of ten"
    model.end(life)
    other.turn = replace(model.turn, soft=SoftTransactions())
    loaded(other.turn)
    assert len(other.mark()) == 2
    assert other.status is Status.COMPLETE_COMMIT


def test_refused_markers_are_sent_again_later(model: Model) -> None:
    life = begun(model)
    model.end(life)
    markers = model.turn.soft.markers
    (due_now,) = markers.due(0, lambda _: True, lambda _: True)
    codes = [o.MarkerCode(P0, Code.NONE), o.MarkerCode(P1, Code.NOT_LEADER_OR_FOLLOWER)]
    assert not list(markers.due(0, lambda _: True, lambda _: True)), "all are on their way"
    assert not markers.heard(due_now, codes, 0)
    assert not list(markers.due(0, lambda _: True, lambda _: True))
    again_ms = markers.next_ms()
    assert again_ms
    (again,) = markers.due(again_ms, lambda _: True, lambda _: True)
    assert again.partitions == (P1,)


def test_uncommitted_decision_sends_no_marker(model: Model) -> None:
    model.end(begun(model))
    assert not list(model.turn.soft.markers.due(0, lambda _: False, lambda _: True))


def test_deleted_topic_needs_no_marker(model: Model) -> None:
    model.end(begun(model))
    (due_now,) = model.turn.soft.markers.due(0, lambda _: True, lambda one: one == P0)
    assert due_now.partitions == (P0,)


def test_verification_names_partitions_of_open_transaction(model: Model) -> None:
    life = model.init()
    assert model.verify(life, P0) == o.PartitionsVerified(frozenset())
    model.add(life, P0)
    assert model.verify(life, P0, P1) == o.PartitionsVerified(frozenset({P0}))
    assert model.verify(ProducerLife(life.producer_id, 9), P0) is Code.PRODUCER_FENCED
    model.end(life)
    assert model.verify(life, P0) is Code.CONCURRENT_TRANSACTIONS


def test_idle_id_is_forgotten_after_expiration(model: Model) -> None:
    model.init()
    day_ms = 24 * 3_600_000
    for _ in range(8 * 24):
        model.pass_ms(day_ms // 24)
    assert model.stored is None
    assert model.turn.state.memory.of_broker.pool.used == 0


def test_refused_tombstone_is_tried_again(model: Model) -> None:
    model.init()
    model.turn = replace(
        model.turn, believed_ms=WALL_MS + 8 * 24 * 3_600_000, now_ms=model.turn.now_ms + 3_600_000
    )
    deadlines = model.turn.soft.deadlines
    (key,) = deadlines.take_due(model.turn.now_ms, 100)
    outcome = step(model.turn, due(key), None)
    assert outcome.records == (TransactionForgotten(transactional_id="x"),)
    assert key in deadlines, "it could not be written: too few replicas are in sync"
    model.write(*outcome.records)
    assert key not in deadlines


def test_full_memory_refuses_newcomers_only() -> None:
    model = Model(TransactionMemory(4_000))
    life = model.init()
    assert life == ProducerLife(100, 0)
    other = o.InitProducer(transactional_id="y", timeout_ms=1, fresh_id=1, principal="User:a")
    assert model.submit(other, "token") is Code.COORDINATOR_LOAD_IN_PROGRESS
    assert model.init() == ProducerLife(100, 1)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_absurd_timeout_is_refused(model: Model, timeout_ms: int) -> None:
    assert model.init(timeout_ms=timeout_ms) is Code.INVALID_TRANSACTION_TIMEOUT


@pytest.mark.parametrize("name", ["", "x" * 256])
def test_absurd_transactional_id_is_refused(model: Model, name: str) -> None:
    op = o.DescribeTransaction(transactional_id=name)
    assert model.submit(op, "token") is Code.INVALID_REQUEST


def test_states_are_listed_by_kafkas_names(model: Model) -> None:
    begun(model)
    every = model.submit(o.ListTransactions(), "token")
    ongoing = model.submit(o.ListTransactions(states=frozenset({"ongoing"})), "token")
    assert [one.transactional_id for one in every.ids] == ["x"]
    assert ongoing == every
    assert model.submit(o.ListTransactions(states=frozenset({"empty"})), "token").ids == ()
    assert model.submit(o.ListTransactions(running_ms=5), "token").ids == ()
    model.pass_ms(6)
    assert model.submit(o.ListTransactions(running_ms=5), "token") == every
    assert model.submit(o.DescribeTransaction(transactional_id="x"), "token") is model.stored
