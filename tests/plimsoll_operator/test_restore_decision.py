"""Which history a log that lost records is restored to, and when a person has to confirm it."""

from __future__ import annotations

import zlib
from dataclasses import replace
from uuid import UUID, uuid4

import msgspec
import pytest
from tests.plimsoll_operator.test_group_commit import CLUSTER

from plimsoll_core.cluster.image import apply_all
from plimsoll_core.cluster.image_encoding import encode_image
from plimsoll_core.cluster.model import (
    ClusterImage,
    DismissedCopy,
    Endpoint,
    HistoryRestored,
    TopicObject,
)
from plimsoll_core.cluster.record_versions import read_records
from plimsoll_core.cluster.records import (
    BrokerFenced,
    BrokerRegistered,
    CertificatesAllowed,
    ControllerChanged,
    MembersChanged,
    MetadataVersionFinalized,
    PartitionsChanged,
    PartitionsCreated,
    Record,
    TopicCreated,
)
from plimsoll_core.ids import BrokerId, ControllerEpoch, MetadataOffset
from plimsoll_core.messages.metadata_copy import CopyContent
from plimsoll_core.messages.metadata_stream import MetadataBatchCopy
from plimsoll_core.messages.requests import LogPosition
from plimsoll_operator.controller import restore_decision
from plimsoll_operator.controller.commit_queue import merged
from plimsoll_operator.controller.restore_decision import (
    LATER_REPLICAS,
    NotRestored,
    Offered,
    ProvenCopy,
    Restore,
    RestoreCase,
    StoredLog,
    Unsure,
    decide_restore,
    prove_copy,
)
from plimsoll_operator.metalog import log_integrity
from plimsoll_operator.metalog.codec import pack
from plimsoll_operator.metalog.interface import EMPTY_TIP, Batch, OpenedLog, SnapshotEnd

BROKERS = (1, 2, 3)


def opening(epoch: int) -> Record:
    return ControllerChanged(
        cause="TakeOver",
        controller_epoch=ControllerEpoch(epoch),
        identity="o",
        term_id=f"term-{epoch}" if epoch > 1 else "",
    )


def registered(broker_id: int) -> Record:
    return BrokerRegistered(
        cause="started",
        broker_id=BrokerId(broker_id),
        incarnation_id=uuid4(),
        directory_ids=(uuid4(),),
        endpoints=(Endpoint(name="i", host="h", port=1),),
    )


def members(*ids: int) -> Record:
    return MembersChanged(cause="spec", broker_ids=tuple(BrokerId(one) for one in ids))


class Chain:
    """A log as one writer after the other made it."""

    def __init__(self, before: Chain | None = None) -> None:
        self.batches: list[Batch] = [] if before is None else list(before.batches)

    def add(self, *records: Record, epoch: int) -> Chain:
        grown = Chain(self)
        tip = EMPTY_TIP
        for batch in self.batches:
            tip = tip.after(batch)
        grown.batches += pack(records, tip, epoch, lambda: uuid4().hex[:16])
        return grown

    @property
    def opened(self) -> OpenedLog:
        found: dict[int, Batch | log_integrity.Emptied] = {b.sequence: b for b in self.batches}
        return log_integrity.assemble((), found)[0]

    def copies(self) -> tuple[MetadataBatchCopy, ...]:
        return tuple(merged((batch,)) for batch in self.batches)

    @property
    def image(self) -> ClusterImage:
        image = ClusterImage(cluster_id=CLUSTER)
        for batch in self.batches:
            image = apply_all(image, read_records(batch.records_json))
        return image

    @property
    def position(self) -> LogPosition:
        last, image = self.batches[-1], self.image
        return LogPosition(
            applied_offset=image.next_offset,
            nonce=last.nonce,
            controller_epoch=ControllerEpoch(last.controller_epoch),
            term_id=image.term_id,
        )

    def sent(self, cluster_id: UUID = CLUSTER) -> bytes:
        content = CopyContent(
            image=encode_image(ClusterImage(cluster_id=cluster_id)),
            nonce=None,
            controller_epoch=ControllerEpoch(0),
            batches=self.copies(),
        )
        return zlib.compress(msgspec.msgpack.encode(content))

    def proven(self, broker_id: int = 1) -> ProvenCopy:
        found = prove_copy(self.sent(), CLUSTER, BrokerId(broker_id), self.position)
        assert isinstance(found, ProvenCopy), found
        return found


def a_log() -> Chain:
    """Three brokers, at the newest metadata version; the second term has an id."""
    chain = Chain().add(opening(1), epoch=1).add(members(*BROKERS), epoch=1)
    for broker_id in BROKERS:
        chain = chain.add(registered(broker_id), epoch=1)
    final = MetadataVersionFinalized(cause="all understand", metadata_version=5)
    return chain.add(final, epoch=1).add(opening(2), epoch=2)


OLD = a_log()
NEW = OLD.add(members(1, 2, 3, 4), epoch=2).add(members(*BROKERS), epoch=2)


def offers(**chains: Chain) -> dict[BrokerId, Offered]:
    return {
        BrokerId(int(name[1:])): Offered(position=chain.position, sends=True)
        for name, chain in chains.items()
    }


def a_case(copy: Chain = NEW, log: Chain = OLD, confirmed: str = "", **at: Chain) -> RestoreCase:
    offered = offers(**({"b1": NEW, "b2": NEW, "b3": NEW} | at))
    return RestoreCase(
        offered=offered, copy=copy.proven(), log=StoredLog(opened=log.opened), confirmed=confirmed
    )


def unsure(case: RestoreCase) -> set[Unsure]:
    found = decide_restore(case)
    assert isinstance(found, NotRestored), found
    return set(found.reasons)


def test_history_that_all_brokers_hold_is_restored() -> None:
    found = decide_restore(a_case(b3=OLD))
    assert isinstance(found, Restore)
    assert found.image == NEW.image
    assert found.nonce == NEW.position.nonce
    assert found.from_brokers == (1, 2)
    assert not found.confirmed


def test_later_term_on_old_log_is_given_up() -> None:
    doomed = OLD.add(opening(3), epoch=3).add(members(1, 2), epoch=3)
    assert isinstance(decide_restore(a_case(log=doomed)), Restore)


def test_answered_decision_on_old_log_needs_person() -> None:
    topic = TopicCreated(
        cause="client", topic_id=uuid4(), name="t", replication_factor=1, min_isr=1
    )
    owned = msgspec.structs.replace(
        topic, object=TopicObject(namespace="n", name="t", uid="u"), cause="object"
    )
    doomed = OLD.add(opening(3), epoch=3)
    assert unsure(a_case(log=doomed.add(topic, epoch=3))) == {Unsure.LOG_DIFFERS}
    assert isinstance(decide_restore(a_case(log=doomed.add(owned, epoch=3))), Restore)


def test_broker_away_needs_a_person() -> None:
    case = a_case()
    case = replace(case, offered={b: one for b, one in case.offered.items() if b != 3})
    assert unsure(case) == {Unsure.AWAY}
    choice = decide_restore(case)
    assert isinstance(choice, NotRestored)
    assert "broker 3 did not answer" in choice.sentence
    confirmed = decide_restore(replace(case, confirmed=choice.choice))
    assert isinstance(confirmed, Restore)
    assert confirmed.confirmed
    assert unsure(replace(case, confirmed="7-of-something-else")) == {Unsure.AWAY}


def test_longer_copy_of_another_broker_is_waited_for() -> None:
    longer = NEW.add(members(1), epoch=2)
    assert unsure(a_case(b3=longer)) == {Unsure.OTHER_HISTORY}


def test_fork_of_two_histories_needs_a_person() -> None:
    fork = OLD.add(opening(3), epoch=3)
    assert unsure(a_case(b3=fork)) == {Unsure.OTHER_HISTORY}


def test_position_below_the_copy_is_judged_by_term() -> None:
    """Its tail begins later, so nonces say nothing."""
    case = a_case()
    copy = case.copy
    assert copy is not None
    content = CopyContent(
        image=encode_image(NEW.image),
        nonce=NEW.position.nonce,
        controller_epoch=NEW.position.controller_epoch,
    )
    stored = zlib.compress(msgspec.msgpack.encode(content))
    short = prove_copy(stored, CLUSTER, BrokerId(1), NEW.position)
    assert isinstance(short, ProvenCopy)
    foreign = LogPosition(
        applied_offset=OLD.position.applied_offset,
        nonce="x",
        controller_epoch=ControllerEpoch(2),
        term_id="foreign",
    )
    offered = dict(case.offered)
    assert isinstance(decide_restore(replace(case, copy=short, offered=offered)), Restore)
    offered[BrokerId(3)] = Offered(position=foreign, sends=True)
    assert unsure(replace(case, copy=short, offered=offered)) == {Unsure.OTHER_HISTORY}


def test_single_holder_of_the_end_needs_a_person() -> None:
    assert unsure(a_case(b2=OLD, b3=OLD)) == {Unsure.ONE_HOLDER}


def test_broker_that_stopped_last_is_believed() -> None:
    """It saw the others stop; two of them did not see the first one's end."""
    broker = OLD.image.brokers[BrokerId(2)]
    stop = BrokerFenced(cause="stopped", broker_id=broker.id, broker_epoch=broker.broker_epoch)
    last = NEW.add(stop, epoch=2)
    found = decide_restore(a_case(copy=last, b1=last))
    assert isinstance(found, Restore)
    assert found.from_brokers == (1,)
    assert found.image == last.image


def test_certificates_that_one_broker_heard_of_are_believed() -> None:
    """The operator that took over declares them first, before the other brokers follow it."""
    allowed = CertificatesAllowed(cause="declared", broker_id=BrokerId(1), sha256=("a" * 64,))
    last = NEW.add(allowed, epoch=2)
    assert isinstance(decide_restore(a_case(copy=last, b1=last)), Restore)


def content_of(image: ClusterImage, chain: Chain, since: int) -> bytes:
    """A copy as a broker sends it: an image, and the batches after the first `since`."""
    content = CopyContent(
        image=encode_image(image),
        nonce=chain.batches[since - 1].nonce,
        controller_epoch=ControllerEpoch(chain.batches[since - 1].controller_epoch),
        batches=chain.copies()[since:],
    )
    return zlib.compress(msgspec.msgpack.encode(content))


@pytest.mark.parametrize("lone", [True, False])
def test_forged_content_under_true_nonces_needs_a_person(lone: bool) -> None:
    """A broker that was taken over knows every nonce. Its copy lacks a broker."""
    broker = NEW.image.brokers[BrokerId(2)]
    stop = BrokerFenced(cause="stopped", broker_id=broker.id, broker_epoch=broker.broker_epoch)
    chain = NEW.add(stop, epoch=2) if lone else NEW
    since = len(OLD.batches)
    mine = OLD.image
    brokers_known = mine.brokers.delete(BrokerId(3))
    forged = msgspec.structs.replace(mine, brokers=brokers_known)
    taken = prove_copy(content_of(forged, chain, since), CLUSTER, BrokerId(1), chain.position)
    assert isinstance(taken, ProvenCopy), taken
    case = replace(a_case(log=NEW, b1=chain), copy=taken)
    assert Unsure.UNPROVEN in unsure(case)
    true = prove_copy(content_of(mine, chain, since), CLUSTER, BrokerId(1), chain.position)
    assert isinstance(true, ProvenCopy), true
    assert isinstance(decide_restore(replace(case, copy=true)), Restore)


def test_unjudged_lone_copy_needs_a_person() -> None:
    """Its image begins behind the end of the log."""
    broker = NEW.image.brokers[BrokerId(2)]
    stop = BrokerFenced(cause="stopped", broker_id=broker.id, broker_epoch=broker.broker_epoch)
    last = NEW.add(stop, epoch=2)
    sent = content_of(NEW.image, last, len(NEW.batches))
    copy = prove_copy(sent, CLUSTER, BrokerId(1), last.position)
    assert isinstance(copy, ProvenCopy), copy
    case = replace(a_case(log=OLD, b1=last), copy=copy)
    assert unsure(case) == {Unsure.ONE_HOLDER}
    assert isinstance(decide_restore(replace(case, log=StoredLog(opened=NEW.opened))), Restore)
    assert isinstance(decide_restore(replace(case, log=StoredLog(damage="lost"))), Restore)


def test_lone_election_beyond_isr_needs_a_person() -> None:
    common = NEW.add(*a_topic(*BROKERS), epoch=2).add(shrunk_to(3, 1), epoch=2)
    for change, believed in (
        (shrunk_to(1), True),
        (shrunk_to(2), False),
        (shrunk(1, replicas=(1, 2)), False),
    ):
        last = common.add(change, epoch=2)
        case = a_case(copy=last, log=common, b1=last, b2=common, b3=common)
        found = decide_restore(case)
        assert isinstance(found, Restore) is believed
        if isinstance(found, NotRestored):
            assert found.reasons == (Unsure.ONE_HOLDER,)


def test_emptied_broker_needs_a_person() -> None:
    case = a_case()
    nothing = LogPosition(
        applied_offset=ClusterImage(cluster_id=CLUSTER).next_offset,
        nonce=None,
        controller_epoch=ControllerEpoch(0),
        term_id="",
    )
    offered = {**case.offered, BrokerId(3): Offered(position=nothing)}
    assert unsure(replace(case, offered=offered)) == {Unsure.EMPTIED}


def test_decision_only_an_answer_told_needs_a_person() -> None:
    case = a_case()
    beyond = replace(case.offered[BrokerId(2)], acted_beyond=True)
    assert unsure(replace(case, offered={**case.offered, BrokerId(2): beyond})) == {
        Unsure.ACTED_BEYOND
    }


def test_reported_position_alone_is_no_answer() -> None:
    """The offer that follows it may say that the broker acted on a decision that no copy has."""
    case = a_case()
    reported = replace(case.offered[BrokerId(2)], sends=False)
    assert unsure(replace(case, offered={**case.offered, BrokerId(2): reported})) == {Unsure.AWAY}


def test_snapshot_beyond_every_copy_needs_a_person() -> None:
    """The batches that it covers are gone, and the brokers were down when they were committed."""
    further = NEW.add(members(1, 2), epoch=2)
    for chain in (further, OLD.add(opening(3), epoch=3)):
        end = SnapshotEnd(end_offset=chain.image.next_offset, nonce=chain.batches[-1].nonce)
        log = StoredLog(damage="lost", snapshot=end)
        assert unsure(replace(a_case(), log=log)) == {Unsure.LOG_DIFFERS}
    for chain, batches in ((OLD, ()), (NEW, ()), (further, further.batches[-2:])):
        end = SnapshotEnd(end_offset=chain.image.next_offset, nonce=chain.batches[-1].nonce)
        log = StoredLog(batches=tuple(batches), damage="lost", snapshot=end)
        assert isinstance(decide_restore(replace(a_case(), log=log)), Restore)


def test_copy_with_implausible_epoch_is_not_proven() -> None:
    forged = NEW.add(opening(2**40), epoch=2**40)
    found = prove_copy(forged.sent(), CLUSTER, BrokerId(1), forged.position)
    assert isinstance(found, str)
    assert "does not follow" in found


def test_damaged_log_keeps_what_no_broker_has() -> None:
    further = NEW.add(members(1, 2), epoch=2)
    left = StoredLog(batches=tuple(further.batches[-2:]), damage="a hole")
    found = decide_restore(replace(a_case(), log=left))
    assert isinstance(found, Restore)
    assert found.image == further.image
    assert found.nonce == further.position.nonce


def test_copy_of_another_cluster_is_not_proven() -> None:
    found = prove_copy(NEW.sent(uuid4()), CLUSTER, BrokerId(1), NEW.position)
    assert isinstance(found, str)
    assert "of cluster" in found


def test_copy_must_end_at_its_stated_position() -> None:
    for position in (
        OLD.position,
        msgspec.structs.replace(NEW.position, nonce="other"),
        msgspec.structs.replace(NEW.position, term_id="other"),
    ):
        assert isinstance(prove_copy(NEW.sent(), CLUSTER, BrokerId(1), position), str)


def test_copy_with_gap_or_contradiction_is_not_proven() -> None:
    gap = Chain()
    gap.batches = [*NEW.batches[:3], *NEW.batches[4:]]
    twice = NEW.add(opening(2), epoch=2)
    for chain in (gap, twice):
        content = CopyContent(
            image=encode_image(ClusterImage(cluster_id=CLUSTER)),
            nonce=None,
            controller_epoch=ControllerEpoch(0),
            batches=chain.copies(),
        )
        stored = zlib.compress(msgspec.msgpack.encode(content))
        assert isinstance(prove_copy(stored, CLUSTER, BrokerId(1), NEW.position), str)
    assert isinstance(prove_copy(b"no copy", CLUSTER, BrokerId(1), NEW.position), str)


def test_copy_that_breaks_its_judge_is_not_proven(monkeypatch: pytest.MonkeyPatch) -> None:
    def judge(*_: object) -> list[str]:
        raise AttributeError("of a kind that nobody foresaw")

    monkeypatch.setattr(restore_decision.invariants, "violations", judge)
    found = prove_copy(NEW.sent(), CLUSTER, BrokerId(1), NEW.position)
    assert found == "it cannot be judged: AttributeError"


# --- a broker that returns with another history ---------------------------------------------------

KEPT = NEW.add(opening(3), epoch=3).add(members(1, 2, 3, 5), epoch=3)
GONE = NEW.add(
    TopicCreated(cause="client", topic_id=uuid4(), name="t", replication_factor=1, min_isr=1),
    epoch=2,
)


def divided(confirmed: str = "", gone: Chain = GONE) -> RestoreCase:
    """Brokers 1 and 2 follow the log, broker 3 another history."""
    case = a_case(copy=KEPT, log=KEPT, confirmed=confirmed, b1=KEPT, b2=KEPT, b3=gone)
    return replace(case, others={BrokerId(3): gone.proven(3)})


def test_returned_history_is_offered_to_be_given_up() -> None:
    found = decide_restore(divided())
    assert isinstance(found, NotRestored)
    (choice,) = found.choices
    assert choice.keeps_log
    assert choice.from_brokers == (1, 2)
    assert "topics with their records t" in choice.gives_up
    kept = decide_restore(divided(choice.value))
    assert isinstance(kept, Restore)
    assert kept.image == KEPT.image
    assert [one.broker_id for one in kept.dismissed] == [3]
    row = kept.row(at_ms=7)
    assert row.confirmed
    assert row.dismissed[0].nonce == GONE.position.nonce


def test_confirmation_names_what_is_given_up() -> None:
    """The log that is kept may grow by a term; another copy needs another confirmation."""
    found = decide_restore(divided())
    assert isinstance(found, NotRestored)
    grown = KEPT.add(opening(4), epoch=4)
    case = a_case(copy=KEPT, log=grown, confirmed=found.choice, b1=KEPT, b2=grown, b3=GONE)
    assert isinstance(decide_restore(replace(case, others={BrokerId(3): GONE.proven(3)})), Restore)
    other = GONE.add(members(1), epoch=2)
    assert isinstance(decide_restore(divided(found.choice, gone=other)), NotRestored)


def test_unproven_history_is_not_given_up() -> None:
    case = replace(divided(), others={})
    found = decide_restore(case)
    assert isinstance(found, NotRestored)
    assert not any(one.keeps_log for one in found.choices)
    again = decide_restore(replace(case, confirmed=found.choice))
    assert isinstance(again, Restore)
    assert again.dismissed == ()


def test_followed_log_may_be_given_up_for_copy() -> None:
    """The copy that reaches furthest is the returned one: a person chooses among both."""
    long = GONE.add(members(1), epoch=2).add(members(1, 2), epoch=2)
    case = a_case(copy=long, log=KEPT, b1=KEPT, b2=KEPT, b3=long)
    others = {BrokerId(b): KEPT.proven(b) for b in (1, 2)}
    case = replace(case, copy=long.proven(3), others=others)
    found = decide_restore(case)
    assert isinstance(found, NotRestored)
    assert [one.keeps_log for one in found.choices] == [False, True]
    chosen = decide_restore(replace(case, confirmed=found.choices[0].value))
    assert isinstance(chosen, Restore)
    assert chosen.image == long.image
    assert [one.broker_id for one in chosen.dismissed] == [1, 2]


# --- records that are given up -------------------------------------------------------------------


TOPIC = uuid4()


def brokers(*ids: int) -> tuple[BrokerId, ...]:
    return tuple(BrokerId(one) for one in ids)


def a_topic(*replicas: int) -> tuple[Record, ...]:
    row = (brokers(*replicas),)
    return (
        TopicCreated(
            cause="client", topic_id=TOPIC, name="r", replication_factor=len(replicas), min_isr=1
        ),
        PartitionsCreated(cause="client", topic_id=TOPIC, first=0, replicas=row, isr=row),
    )


def shrunk(*isr: int, replicas: tuple[int, ...] = BROKERS) -> Record:
    """The record that the partition has this ISR, which its first member leads."""
    return PartitionsChanged(
        cause="shrink",
        topic_id=TOPIC,
        ranges=((0, 0),),
        leader=BrokerId(isr[0]),
        leader_epoch_step=1,
        isr=brokers(*isr),
        replicas=brokers(*replicas),
    )


def shrunk_to(*isr: int) -> Record:
    """The same, as a controller states it: replicas that do not change are not in it."""
    return msgspec.structs.replace(shrunk(*isr), replicas=msgspec.UNSET)


def parted(lost: Chain, kept: Chain) -> RestoreCase:
    """Brokers 1 and 2 follow the log, broker 3 another history."""
    case = a_case(copy=kept, log=kept, b1=kept, b2=kept, b3=lost)
    return replace(case, others={BrokerId(3): lost.proven(3)})


PARTED_RECORDS = "records acknowledged since the histories parted, of partitions r-0"


def test_records_only_lost_history_acknowledged_are_named() -> None:
    common = NEW.add(*a_topic(*BROKERS), epoch=2)
    kept = common.add(opening(3), epoch=3).add(members(*BROKERS), epoch=3)
    for isr, named in (((3,), True), ((3, 1), False)):
        lost = common.add(shrunk(*isr), epoch=2)
        found = decide_restore(parted(lost, kept))
        assert isinstance(found, NotRestored)
        (choice,) = found.choices
        assert (PARTED_RECORDS in choice.gives_up) is named


def test_records_only_followed_log_acknowledged_are_named() -> None:
    """The returned history is chosen: the brokers of the log set their logs aside."""
    common = NEW.add(*a_topic(*BROKERS), epoch=2)
    log = common.add(opening(3), epoch=3).add(shrunk(1, 2), epoch=3)
    long = common
    for _ in range(3):
        long = long.add(members(*BROKERS), epoch=2)
    case = a_case(copy=long, log=log, b1=log, b2=log, b3=long)
    others = {BrokerId(b): log.proven(b) for b in (1, 2)}
    found = decide_restore(replace(case, copy=long.proven(3), others=others))
    assert isinstance(found, NotRestored)
    assert not found.choices[0].keeps_log
    assert PARTED_RECORDS in found.choices[0].gives_up


def test_sole_replica_that_stays_is_not_named() -> None:
    """Its broker keeps the log, though the lost history had begun to add another replica."""
    common = NEW.add(*a_topic(3), epoch=2)
    lost = common.add(shrunk(3, replicas=(3, 1)), epoch=2)
    kept = common.add(opening(3), epoch=3).add(members(*BROKERS), epoch=3)
    found = decide_restore(parted(lost, kept))
    assert isinstance(found, NotRestored)
    assert not any("r-0" in one for one in found.choices[0].gives_up)
    moved = common.add(shrunk(1, replicas=(1,)), epoch=2)
    found = decide_restore(parted(moved, kept))
    assert isinstance(found, NotRestored)
    assert PARTED_RECORDS in found.choices[0].gives_up


def test_copy_given_up_earlier_counts_as_dismissed() -> None:
    """Broker 1 still has to drop a copy; then nobody of the ISR of 1 and 3 keeps its log."""
    common = NEW.add(*a_topic(*BROKERS), epoch=2)
    gone = DismissedCopy(broker_id=BrokerId(1), applied_offset=MetadataOffset(5), nonce="n")
    now = HistoryRestored(at_ms=1, end_offset=common.image.next_offset, dismissed=(gone,))
    third = msgspec.structs.replace(opening(3), restored=now)
    kept = common.add(third, epoch=3).add(shrunk(1, 3), epoch=3)
    lost = common.add(members(*BROKERS), epoch=2)
    found = decide_restore(parted(lost, kept))
    assert isinstance(found, NotRestored)
    assert "records of partitions with no other replica in sync r-0" in found.choices[0].gives_up


def test_confirmed_copy_names_the_copies_it_dismisses() -> None:
    """The copy of broker 1 is proven after the person saw the offer."""
    long = GONE.add(members(1), epoch=2).add(members(1, 2), epoch=2)
    case = a_case(copy=long, log=KEPT, b1=KEPT, b2=KEPT, b3=long)
    case = replace(case, copy=long.proven(3), others={BrokerId(2): KEPT.proven(2)})
    found = decide_restore(case)
    assert isinstance(found, NotRestored)
    case = replace(case, confirmed=found.choices[0].value)
    chosen = decide_restore(case)
    assert isinstance(chosen, Restore)
    assert [one.broker_id for one in chosen.dismissed] == [2]
    assert chosen.row(at_ms=1).digest == long.proven(3).digest
    both = {BrokerId(b): KEPT.proven(b) for b in (1, 2)}
    assert isinstance(decide_restore(replace(case, others=both)), NotRestored)


def of_backup(chain: Chain) -> ProvenCopy:
    found = prove_copy(chain.sent(), CLUSTER, None, chain.position)
    assert isinstance(found, ProvenCopy), found
    return found


def backup_case(confirmed: str = "", **offered: Chain) -> RestoreCase:
    return RestoreCase(
        offered=offers(**offered), log=StoredLog(), copy=of_backup(OLD), confirmed=confirmed
    )


def test_backup_is_restored_only_by_a_person() -> None:
    found = decide_restore(backup_case())
    assert isinstance(found, NotRestored)
    assert set(found.reasons) >= {Unsure.BACKUP, Unsure.AWAY}
    assert found.choices[0].from_backup
    assert LATER_REPLICAS in found.choices[0].gives_up
    restored = decide_restore(backup_case(found.choice))
    assert isinstance(restored, Restore)
    assert restored.from_backup
    assert restored.confirmed
    assert restored.image == OLD.image


def test_backup_is_refused_while_brokers_hold_more() -> None:
    choice = of_backup(OLD).choice
    found = decide_restore(backup_case(choice, b1=NEW, b2=OLD, b3=OLD))
    assert isinstance(found, NotRestored)
    assert found.choices == ()
    assert "stop broker 1 and delete" in found.sentence
    within = decide_restore(backup_case(choice, b1=OLD, b2=OLD, b3=OLD))
    assert isinstance(within, Restore)


def test_point_of_backup_leaves_out_later_batches() -> None:
    case = replace(
        backup_case(of_backup(OLD).choice), log=StoredLog(batches=tuple(NEW.batches), damage="x")
    )
    further, exact = decide_restore(case), decide_restore(replace(case, exact=True))
    assert isinstance(further, Restore)
    assert isinstance(exact, Restore)
    assert further.image == NEW.image
    assert exact.image == OLD.image
