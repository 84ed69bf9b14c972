"""Restarts: granted in the log, one arbiter, the first of a revision alone, ended by the return."""

from collections.abc import Callable
from typing import Any

import pytest
from tests.plimsoll_core import rebalances

from plimsoll_core.cluster.image_encoding import decode_image, encode_image
from plimsoll_core.cluster.records import RestartEnded, RestartGranted
from plimsoll_core.errors import Reason
from plimsoll_core.messages.brokers import RequestRestart, RestartAnswer
from plimsoll_core.messages.moves import AlterReassignments, PartitionTarget
from plimsoll_core.messages.requests import CreateTopics, NewTopic, Refused, SetMembers, Tick


class Rolls:
    """A world whose brokers run in pods, and where all replicas catch up."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.pods = dict.fromkeys(world.image.brokers, 0)
        for b in self.pods:
            self.replace(b, "")
        self.catch_up()

    def pod(self, broker: int) -> str:
        return f"pod-{broker}-{self.pods[broker]}"

    def replace(self, broker: int, revision: str) -> None:
        """The pod stops cleanly, and another one comes up."""
        world = self.world
        self.pods[broker] += 1
        world.register(broker, clean=True, pod_uid=self.pod(broker), revision=revision)
        world.now_ms += world.settings.flap_wait_ms_max
        for other in world.image.brokers:
            world.beat(other)
        assert world.image.brokers[broker].active

    def catch_up(self) -> None:
        for p in list(self.world.image.partitions.values()):
            name = self.world.image.topics[p.topic_id].name
            answer = self.world.propose(list(p.replicas), p.index, name=name)
            assert answer.code in (0, 108), answer

    def ask(self, broker: int, revision: str = "R1", pod: str | None = None) -> RestartAnswer:
        answer = self.world.ask(
            RequestRestart(broker_id=broker, pod_uid=pod or self.pod(broker), revision=revision)
        )
        assert isinstance(answer, RestartAnswer)
        return answer

    def tick(self) -> None:
        for broker, known in self.world.image.brokers.items():
            if not known.fenced:
                self.world.beat(broker)
        self.world.ask(Tick())

    def restart(self, broker: int, revision: str = "R1") -> None:
        assert self.ask(broker, revision).granted
        self.replace(broker, revision)
        self.catch_up()
        self.tick()
        assert broker not in self.grants

    @property
    def grants(self) -> Any:
        return self.world.image.grants


@pytest.fixture
def rolls(new_world: Callable[..., Any]) -> Rolls:
    """Six brokers; `left` lives on 0, 1, 2 and `right` on 3, 4, 5."""
    world = new_world(6)
    world.declare("left", strategy="Explicit", assignment=((0, 1, 2),))
    world.declare("right", strategy="Explicit", assignment=((3, 4, 5),))
    return Rolls(world)


def test_grant_is_committed_and_survives_the_controller(rolls: Rolls) -> None:
    assert rolls.ask(0).granted
    rolls.world.take_over()
    assert list(rolls.grants) == [0]
    end = len(rolls.world.log)
    assert rolls.ask(0).granted
    assert len(rolls.world.log) == end
    assert decode_image(encode_image(rolls.world.image)) == rolls.world.image


def test_restart_grant_ends_when_replacement_is_in_isr(rolls: Rolls) -> None:
    rolls.ask(0)
    rolls.tick()
    assert list(rolls.grants) == [0], "the old pod is still there"
    rolls.replace(0, "R1")
    rolls.tick()
    assert list(rolls.grants) == [0], "it takes part, but left-0 lacks it"
    rolls.catch_up()
    rolls.tick()
    assert not rolls.grants
    assert rolls.world.image.proven_revision == "R1"


def test_process_restarted_in_same_pod_is_no_replacement(rolls: Rolls) -> None:
    rolls.ask(0)
    pod = rolls.pod(0)
    rolls.world.register(0, clean=True, pod_uid=pod)
    rolls.world.now_ms += rolls.world.settings.flap_wait_ms_max
    for broker in range(6):
        rolls.world.beat(broker)
    assert rolls.world.image.restart_granted(0)
    rolls.tick()
    assert list(rolls.grants) == [0]


def test_first_of_a_revision_goes_alone(rolls: Rolls) -> None:
    assert rolls.ask(0).granted
    (wait,) = rolls.ask(3).waits
    assert wait.reason == "FirstOfItsRevision"
    assert wait.until == "broker 0 is back from its restart and in sync everywhere"


def test_then_disjoint_brokers_go_together(rolls: Rolls) -> None:
    rolls.restart(0)
    assert rolls.ask(1).granted
    assert rolls.ask(3).granted
    answer = rolls.ask(2)
    assert not answer.granted
    assert [(w.reason, w.topic, w.index) for w in answer.waits] == [
        ("AnotherBrokerIsAway", "left", 0)
    ]
    assert rolls.ask(4).granted is False


def test_another_revision_waits_for_all_that_are_away(rolls: Rolls) -> None:
    rolls.restart(0)
    assert rolls.ask(1).granted
    assert rolls.ask(3, "R2").waits[0].reason == "FirstOfItsRevision"


def test_pod_of_another_revision_ends_grant_without_proof(
    rolls: Rolls,
) -> None:
    """Another client deleted the pod before its template was written."""
    rolls.ask(0)
    rolls.replace(0, "")
    rolls.catch_up()
    rolls.tick()
    assert not rolls.grants
    assert rolls.world.image.proven_revision == ""


def test_stuck_broker_gets_another_revision_within_its_grant(rolls: Rolls) -> None:
    """A bad image: the new pod never registers.  Correcting the spec replaces that pod."""
    rolls.ask(0, "bad")
    rolls.world.kill(0)
    assert not rolls.ask(3, "good").granted
    rolls.pods[0] += 1
    assert rolls.ask(0, "good").granted
    assert (rolls.grants[0].pod_uid, rolls.grants[0].revision) == (rolls.pod(0), "good")
    rolls.replace(0, "good")
    rolls.catch_up()
    rolls.tick()
    assert rolls.world.image.proven_revision == "good"


def test_granted_broker_out_of_isr_gets_another_revision(rolls: Rolls) -> None:
    """Seed 1339143: its process crashed under a grant for a bad revision.  It may join no ISR
    before its restart, and its restart into a good revision waited for it to join."""
    world = rolls.world
    world.declare("exposed", strategy="Explicit", assignment=((0, 1, 2),), min_isr=3)
    rolls.catch_up()
    assert rolls.ask(0, "bad").granted
    world.register(0, clean=False, pod_uid=rolls.pod(0), revision="")
    world.now_ms += world.settings.flap_wait_ms_max
    for broker in world.image.brokers:
        world.beat(broker)
    assert world.image.brokers[0].active
    assert all(0 not in p.isr for p in world.image.partitions.values())
    assert world.image.restart_granted(0)
    answer = rolls.ask(0, "good")
    assert answer.granted, answer.waits
    assert rolls.grants[0].revision == "good"


def test_broker_that_never_came_up_may_be_replaced(rolls: Rolls) -> None:
    rolls.world.ask(SetMembers(broker_ids=tuple(range(7))))
    rolls.pods[6] = 0
    assert rolls.ask(6).granted
    assert rolls.grants[6].broker_epoch is None
    rolls.tick()
    assert list(rolls.grants) == [6], "a member that has yet to come up"
    rolls.world.ask(SetMembers(broker_ids=tuple(range(6))))
    rolls.tick()
    assert not rolls.grants, "it is no part of the cluster any more"


def test_stranger_is_refused(rolls: Rolls) -> None:
    answer = rolls.world.ask(RequestRestart(broker_id=9, pod_uid="x", revision="R1"))
    assert isinstance(answer, Refused)
    assert answer.reason == Reason.BrokerIdNotRegistered.name


def test_restart_is_not_granted_while_maintenance_is_suspended(
    new_world: Callable[..., Any],
) -> None:
    world = new_world(3, maintenance_suspended=True)
    rolls = Rolls(world)
    answer = rolls.ask(0)
    assert (answer.granted, answer.waits[0].reason) == (False, "MaintenanceSuspended")


def test_restart_at_margin_names_broker_that_must_rejoin(rolls: Rolls) -> None:
    rolls.world.propose([0, 1], name="left")
    (wait,) = rolls.ask(0).waits
    assert wait.until == "broker 2 rejoins the ISR of left-0"
    assert rolls.ask(2).granted, "it takes nothing away"


def test_silent_broker_counts_as_absent_for_restarts(rolls: Rolls) -> None:
    """It may have died a moment ago: then a restart beside it would be one too many."""
    world = rolls.world
    world.now_ms += world.settings.session_timeout_ms * 2 // 3
    for broker in (0, 2, 3, 4, 5):
        world.beat(broker)
    assert rolls.ask(0).waits[0].until.startswith("broker 1 is back")
    world.beat(1)
    assert rolls.ask(0).granted


def test_broker_unheard_in_this_term_counts_as_absent(rolls: Rolls) -> None:
    """It may have died together with the former controller, on the same node."""
    world = rolls.world
    world.take_over()
    for broker in (0, 2, 3, 4, 5):
        world.beat(broker)
    assert rolls.ask(0).waits[0].until.startswith("broker 1 is back")
    world.beat(1)
    assert rolls.ask(0).granted


def test_grant_of_unregistered_pod_survives_the_former_registration(rolls: Rolls) -> None:
    """The pod was deleted by force and another made, which is granted a restart before it has
    registered; the former process is dead, and its session has not expired yet."""
    world = rolls.world
    rolls.pods[0] += 1
    assert rolls.ask(0).granted
    world.ask(Tick())
    assert list(rolls.grants) == [0], "no process has registered since the grant"
    rolls.replace(0, "R1")
    rolls.catch_up()
    rolls.tick()
    assert not rolls.grants


class TestMovesMeanwhile:
    @pytest.fixture
    def move(self, rolls: Rolls) -> Callable[[tuple[int, ...] | None], str]:
        world = rolls.world
        topic = NewTopic(name="free", assignment=((0, 1, 2),))
        world.ask(CreateTopics(topics=(topic,)))
        assert rolls.ask(0).granted

        def ask(replicas: tuple[int, ...] | None) -> str:
            target = PartitionTarget(topic="free", index=0, replicas=replicas)
            answer = world.ask(AlterReassignments(targets=(target,)))
            return str(answer.partitions[0].reason)

        return ask

    def test_reassignment_is_rejected_when_restart_breaks_its_target(
        self, move: Callable[[tuple[int, ...] | None], str]
    ) -> None:
        assert move((0, 3)) == "BrokerRestarts"
        assert move((1, 3)) == ""

    def test_reassignment_cancel_is_rejected_when_restart_breaks_isr(
        self, rolls: Rolls, move: Callable[[tuple[int, ...] | None], str]
    ) -> None:
        assert move((0, 1, 2, 3, 4)) == ""
        assert rolls.world.propose([0, 1, 3], name="free").code == 0
        assert move(None) == "BrokerRestarts"
        assert rolls.world.propose([0, 1, 2], name="free").code == 0
        assert move(None) == ""


class TestRebalancesMeanwhile:
    """Partitions of two replicas and min ISR two, on brokers 0 and 1; 2 and 3 are to be filled."""

    @pytest.fixture
    def world(self, new_world: Callable[..., Any]) -> Any:
        world = new_world(4)
        rebalances.topic(world, ((0, 1), (1, 0)) * 3)
        rebalances.begin(world, "AddBrokers", 2, 3)
        return world

    @staticmethod
    def away(world: Any, broker: int) -> None:
        epoch = world.image.brokers[broker].broker_epoch
        world.commit(RestartGranted(cause="x", broker_id=broker, broker_epoch=epoch, revision="R1"))

    def test_rebalance_move_onto_restarting_broker_waits(self, world: Any) -> None:
        self.away(world, 0)
        waiting = [m for m in rebalances.rest(world).moves.values() if 0 in m.after and m.adding]
        assert waiting
        rebalances.look(world)
        assert all(0 not in p.target for p in rebalances.moving(world))
        world.commit(RestartEnded(cause="x", broker_id=0))
        assert rebalances.finish(world).phase == "Completed"
