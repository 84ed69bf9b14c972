"""Beginning a lifetime: who may, and what the last one is still trusted with."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

from plimsoll_core.cluster.model import Endpoint
from plimsoll_core.cluster.records import BrokerRegistered
from plimsoll_core.ids import ControllerEpoch, MetadataOffset
from plimsoll_core.messages.requests import (
    LogPosition,
    Refused,
    RegisterBroker,
    Registered,
    SetMembers,
)

OTHER_DISK = (UUID(int=0xE7),)


def test_registration_answers_the_records_offset_and_is_fenced(world: Any) -> None:
    """REPLY BE; the last record: Broker(fenced=true, shutting_down=false)."""
    answer = world.register(1)
    assert isinstance(answer, Registered)
    assert isinstance(world.log[-1], BrokerRegistered)
    assert answer.broker_epoch == len(world.log) - 1
    assert world.image.brokers[1].fenced


def test_clean_stop_leaves_the_isr_but_stays_electable(world: Any) -> None:
    """clean: for p with b ∈ isr: change(p, isr−{b}) (b may land in the ELR)."""
    world.propose([0, 1])
    world.register(1, clean=True)
    assert (world.p().isr, world.p().elr) == ((0,), (1,))


def test_unclean_stop_is_no_longer_trusted(world: Any) -> None:
    """unclean: b leaves both, and enters LKELR while abs(isr') < m'."""
    world.propose([0, 1])
    world.register(1)
    assert (world.p().isr, world.p().elr, world.p().last_known_elr) == ((0,), (), (1,))


def test_unclean_stop_leaves_the_elr(world: Any) -> None:
    """S10: 1 to LKELR, 2 elected from the ELR."""
    world.propose([0, 1])
    world.register(1, clean=True)
    world.register(0)
    assert (world.p().isr, world.p().elr, world.p().last_known_elr) == ((), (1,), (0,))
    world.start(1, clean=True)
    assert (world.p().leader, world.p().isr) == (1, (1,))


def test_registration_with_other_broker_epoch_is_unclean(world: Any) -> None:
    """S26, S27: equality with the stored epoch, not mere presence, matters."""
    world.propose([0, 1])
    stale = world.image.brokers[1].broker_epoch
    world.start(1, clean=True)
    world.propose([0, 1])
    world.register(1, previous_broker_epoch=stale)
    assert world.p().last_known_elr == (1,)


def test_clean_stop_without_metadata_is_unclean(world: Any) -> None:
    """In a log that went back to an earlier point, an equal epoch proves nothing: the broker may
    have left the ISR, or lost the replica, since."""
    world.propose([0, 1])
    nothing = LogPosition(
        applied_offset=MetadataOffset(0), nonce=None, controller_epoch=ControllerEpoch(0)
    )
    world.register(1, clean=True, position=nothing)
    assert (world.p().isr, world.p().elr, world.p().last_known_elr) == ((0,), (), (1,))


def test_clean_stop_with_metadata_stays_electable(world: Any) -> None:
    world.propose([0, 1])
    known = LogPosition(
        applied_offset=MetadataOffset(7), nonce="n", controller_epoch=ControllerEpoch(1)
    )
    world.register(1, clean=True, position=known)
    assert (world.p().isr, world.p().elr) == ((0,), (1,))


def test_first_registration_touches_nothing(world: Any) -> None:
    before = world.image.partitions
    world.register(7)
    assert world.image.partitions is before


def test_registration_of_same_process_keeps_epoch(world: Any) -> None:
    broker = world.image.brokers[1]
    moved = (Endpoint(name="internal", host="::1", port=1),)
    same = {"incarnation_id": broker.incarnation_id, "endpoints": moved}
    answer = world.register(1, **same)
    assert answer.broker_epoch == broker.broker_epoch
    assert world.image.brokers[1].active
    assert world.image.brokers[1].endpoints == moved
    end = len(world.log)
    assert world.register(1, **same).broker_epoch == broker.broker_epoch
    assert len(world.log) == end


def test_another_clusters_volume_is_refused_in_a_sentence(world: Any) -> None:
    answer = world.register(1, cluster_id=UUID(int=9))
    assert (answer.reason, answer.code) == ("InconsistentClusterId", 104)
    assert "volume belongs to cluster" in answer.message


def test_another_brokers_volume_is_refused(world: Any) -> None:
    answer = world.register(1, directory_ids=world.image.brokers[2].directory_ids)
    assert (answer.reason, answer.code) == ("InvalidRegistration", 119)
    assert "belongs to broker 2" in answer.message


def test_directories_are_named_once_each(world: Any) -> None:
    for ids in ((), (OTHER_DISK[0], OTHER_DISK[0])):
        assert world.register(1, directory_ids=ids).reason == "InvalidRegistration"


def test_registration_of_a_second_live_process_is_refused(world: Any) -> None:
    """101: no live session of another incarnation; the broker retries until it expires."""
    answer = world.register(1, directory_ids=OTHER_DISK)
    assert (answer.reason, answer.code) == ("DuplicateBrokerRegistration", 101)
    world.now_ms += world.settings.session_timeout_ms
    assert isinstance(world.register(1, directory_ids=OTHER_DISK), Registered)


def test_registration_with_same_directories_replaces_live_session(world: Any) -> None:
    """R24: it holds their lock."""
    assert isinstance(world.register(1), Registered)


def test_unknown_id_is_refused_once_members_are_declared(new_world: Any) -> None:
    world = new_world(3)
    world.ask(SetMembers(broker_ids=(0, 1)))
    answer = world.register(7)
    assert "not a member" in answer.message
    assert isinstance(world.register(2), Registered), "a broker being removed may come back"


def test_negative_id_is_refused(world: Any) -> None:
    assert world.register(-1).reason == "InvalidRegistration"


def test_registration_before_cluster_declaration_returns_not_controller(
    new_world: Callable[..., Any],
) -> None:
    world = new_world(0)
    world.image = world.empty
    assert world.register(0).reason == "NotController"


class TestEmptyVolume:
    """R22: a failed mount looks exactly like an empty disk."""

    def test_emptied_directory_is_formatted_when_another_copy_exists(self, world: Any) -> None:
        answer = world.register(1, volume_is_empty=True, directory_ids=(UUID(int=0xD1),))
        assert answer.may_format

    def test_emptied_directory_with_last_copy_is_refused(self, world: Any) -> None:
        world.declare("single", replication_factor=1, min_isr=1)
        alone = world.p(name="single").leader
        answer = world.register(alone, volume_is_empty=True)
        assert isinstance(answer, Refused)
        assert answer.reason == "VolumeNotEmptied"
        assert "single-0" in answer.message
        assert world.image.brokers[alone].active

    def test_counts_as_unclean_whatever_its_marker_says(self, world: Any) -> None:
        world.propose([0, 1])
        world.register(1, clean=True, volume_is_empty=True)
        assert world.p().last_known_elr == (1,)


def test_registration_over_many_partitions_is_sliced(new_world: Callable[..., Any]) -> None:
    """The broker is not elected between the slices, and the registration comes last."""
    world = new_world(3, slice_partitions_max=4)
    world.declare(partitions=10)
    turns = 0
    request = RegisterBroker(
        cluster_id=world.image.cluster_id,
        broker_id=0,
        incarnation_id=UUID(int=99),
        previous_broker_epoch=None,
        directory_ids=world.image.brokers[0].directory_ids,
        endpoints=(),
        metadata_versions=(1, 1),
        release="0.2.0",
    )
    while True:
        decision = world.decide(request)
        for record in decision.records:
            world.commit(record)
        turns += 1
        if decision.again is None:
            break
        assert world.propose([0, 1, 2], index=0, sender=1).code in (42, 107)
        request = decision.again
    assert turns == 3
    assert isinstance(world.log[-1], BrokerRegistered)
    assert all(0 not in p.isr for p in world.image.partitions.values())


def test_crash_during_registration_keeps_next_one_unclean(new_world: Any) -> None:
    """S29 (a): the broker re-registers, still unclean, the rest is processed."""
    world = new_world(3, slice_partitions_max=4)
    world.declare(partitions=10, min_isr=3)
    request = RegisterBroker(
        cluster_id=world.image.cluster_id,
        broker_id=0,
        incarnation_id=UUID(int=99),
        previous_broker_epoch=None,
        directory_ids=world.image.brokers[0].directory_ids,
        endpoints=(),
        metadata_versions=(1, 1),
        release="0.2.0",
    )
    world.ask(request, crash_after=1)
    assert any(0 in p.isr for p in world.image.partitions.values())
    world.register(0)
    assert all(p.last_known_elr == (0,) for p in world.image.partitions.values())
