"""When a metadata version is finalised, and for whom it waits."""

from collections.abc import Callable
from typing import Any

from plimsoll_core.cluster.record_versions import NEWEST, RELEASES
from plimsoll_core.controller.brokers.metadata_finalization import Finalization, finalization
from plimsoll_core.controller.decide import Settings
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.messages.brokers import RequestRestart
from plimsoll_core.messages.requests import (
    HeartbeatAnswer,
    Refused,
    Registered,
    SetMembers,
    Tick,
)

World = Any
BOTH = {"metadata_versions": (1, NEWEST), "release": "0.2"}


def begun(new_world: Callable[..., World], **settings: int) -> World:
    """Three brokers of 0.1, as a term finds them."""
    return new_world(3, **settings)


def upgraded(world: World, *brokers: int) -> None:
    for broker in brokers:
        assert isinstance(world.register(broker, clean=True, **BOTH), Registered)
        world.beat(broker, **BOTH)
        world.beat(broker, **BOTH)


def look(world: World) -> Finalization:
    turn = DecisionContext(
        image=world.image, soft=world.soft, now_ms=world.now_ms, settings=world.settings
    )
    return finalization(turn)


def test_metadata_version_waits_for_broker_of_previous_release(
    new_world: Callable[..., World],
) -> None:
    world = begun(new_world)
    upgraded(world, 0, 1)
    world.ask(Tick())
    assert world.image.metadata_version == 1
    assert look(world).finalizable == 1
    assert look(world).waits == ((2, "broker 2, which runs release 0.2.0, is upgraded"),)


def test_metadata_version_is_finalised_when_all_brokers_understand(
    new_world: Callable[..., World],
) -> None:
    world = begun(new_world)
    upgraded(world, 0, 1, 2)
    assert look(world) == Finalization(finalised=1, finalizable=NEWEST, wanted=NEWEST)
    world.ask(Tick())
    assert world.image.metadata_version == NEWEST
    world.ask(Tick())
    assert world.image.metadata_version == NEWEST


def test_new_term_waits_for_all_brokers_again(
    new_world: Callable[..., World],
) -> None:
    world = begun(new_world)
    upgraded(world, 0, 1, 2)
    world.take_over()
    for broker in (0, 1):
        world.beat(broker, **BOTH)
    world.ask(Tick())
    assert world.image.metadata_version == 1
    assert look(world).waits == ((2, "broker 2 sends heartbeats again"),)
    world.beat(2, **BOTH)
    world.ask(Tick())
    assert world.image.metadata_version == NEWEST


def test_silent_broker_is_awaited_as_possibly_older(
    new_world: Callable[..., World],
) -> None:
    world = begun(new_world)
    upgraded(world, 0, 1, 2)
    world.kill(2)
    world.now_ms += 2 * world.settings.session_timeout_ms
    for broker in (0, 1):
        world.beat(broker, **BOTH)
    assert look(world).finalizable == 1


def test_member_that_never_registered_is_waited_for(new_world: Callable[..., World]) -> None:
    world = new_world(0)
    assert look(world).finalizable == 1
    world.ask(Tick())
    assert world.image.metadata_version == 1


def test_version_is_finalised_when_last_broker_is_unfenced(
    new_world: Callable[..., World],
) -> None:
    """Whoever waited for the brokers may ask for what needs it at once."""
    world = new_world(0)
    world.ask(SetMembers(broker_ids=(0, 1)))
    upgraded(world, 0)
    assert world.image.brokers[0].active
    assert world.image.metadata_version == 1
    upgraded(world, 1)
    assert world.image.brokers[1].active
    assert world.image.metadata_version == NEWEST


def test_restart_under_way_is_waited_for(new_world: Callable[..., World]) -> None:
    world = begun(new_world)
    upgraded(world, 0, 1, 2)
    world.ask(RequestRestart(broker_id=0, pod_uid="p", revision="R2"))
    assert world.image.grants
    world.ask(Tick())
    assert world.image.metadata_version == 1
    assert look(world).waits == ((0, "broker 0 is back from its restart"),)


def test_pinned_version_is_kept_whatever_is_understood(new_world: Callable[..., World]) -> None:
    world = begun(new_world, metadata_version=1)
    upgraded(world, 0, 1, 2)
    world.ask(Tick())
    assert world.image.metadata_version == 1
    assert look(world).finalizable == NEWEST
    assert look(world).waits == ()
    world.settings = Settings(metadata_version=NEWEST)
    world.ask(Tick())
    assert world.image.metadata_version == NEWEST


def test_unknown_pinned_version_waits_without_intermediate_steps(
    new_world: Callable[..., World],
) -> None:
    world = begun(new_world, metadata_version=NEWEST + 1)
    upgraded(world, 0, 1, 2)
    world.ask(Tick())
    assert world.image.metadata_version == 1
    assert [broker for broker, _ in look(world).waits] == [None]


def test_finalised_version_outlives_a_pin_that_is_lower(new_world: Callable[..., World]) -> None:
    world = begun(new_world)
    upgraded(world, 0, 1, 2)
    world.ask(Tick())
    world.settings = Settings(metadata_version=1)
    world.ask(Tick())
    assert world.image.metadata_version == NEWEST


def test_broker_that_cannot_read_log_does_not_register(
    new_world: Callable[..., World],
) -> None:
    world = begun(new_world)
    upgraded(world, 0, 1, 2)
    world.ask(Tick())
    before = world.image
    answer = world.register(2, clean=True)
    assert isinstance(answer, Refused)
    assert (answer.reason, answer.code) == ("MetadataTooNew", 35)
    assert "release 0.2.0" in answer.message
    assert f"this cluster's is {RELEASES[NEWEST]}" in answer.message
    assert world.image == before


def test_broker_without_old_version_does_not_register(
    new_world: Callable[..., World],
) -> None:
    world = begun(new_world)
    answer = world.register(2, clean=True, metadata_versions=(2, 3), release="0.3")
    assert isinstance(answer, Refused)
    assert answer.reason == "MetadataTooOld"


class TestABrokerThatCannotReadWhatWasDecided:
    """It stops applying and says so with its heartbeats."""

    def test_broker_with_unknown_metadata_is_fenced_when_alone(
        self, new_world: Callable[..., World]
    ) -> None:
        world = begun(new_world)
        stuck = world.image.next_offset
        world.declare("later")
        world.beat(0)
        world.beat(1)
        answer = world.beat(2, applied=stuck, unknown_metadata="a newer kind")
        assert answer == HeartbeatAnswer(is_caught_up=True, is_fenced=True, should_shut_down=False)
        again = world.beat(2, applied=stuck, unknown_metadata="a newer kind")
        assert isinstance(again, HeartbeatAnswer)
        assert again.is_fenced, "it would be given leaderships that it never hears of"

    def test_brokers_all_stopped_at_a_record_stay_unfenced(
        self, new_world: Callable[..., World]
    ) -> None:
        world = begun(new_world)
        stuck = world.image.next_offset
        world.declare("later")
        for broker in (0, 1, 2, 0, 1, 2):
            answer = world.beat(broker, applied=stuck, unknown_metadata="a newer kind")
            assert isinstance(answer, HeartbeatAnswer)
            assert not answer.is_fenced

    def test_stop_does_not_wait_for_another_broker(self, new_world: Callable[..., World]) -> None:
        world = begun(new_world)
        stuck = world.image.next_offset
        world.beat(2, applied=stuck, unknown_metadata="a newer kind")
        world.declare()
        for _ in range(4):
            world.beat(1)
            answer = world.beat(0, want_shutdown=True)
        assert isinstance(answer, HeartbeatAnswer)
        assert answer.should_shut_down
