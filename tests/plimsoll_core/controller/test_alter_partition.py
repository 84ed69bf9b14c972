"""Leaders' proposals: the checks and their order, and what a committed one answers."""

from typing import Any
from uuid import UUID

import pytest
from msgspec.structs import replace

from plimsoll_core.cluster.model import Recovery
from plimsoll_core.cluster.records import PartitionsChanged, RestartGranted
from plimsoll_core.errors import Reason
from plimsoll_core.messages.requests import IsrMember


def test_committed_proposal_answers_the_new_state(world: Any) -> None:
    answer = world.propose([0, 2])
    assert (answer.code, answer.leader, answer.leader_epoch) == (0, 0, 0)
    assert (answer.isr, answer.partition_epoch) == ((0, 2), 1)
    assert world.p().isr == (0, 2)


def test_cause_goes_into_the_record(world: Any) -> None:
    world.propose([0, 2], cause="lag: broker 1 is 31 s behind")
    assert world.log[-1].cause == "lag: broker 1 is 31 s behind"
    world.propose([0, 1, 2], cause="caught-up" + "!" * 1_000)
    assert len(world.log[-1].cause) == 200


def test_alter_partition_with_same_isr_writes_no_record(world: Any) -> None:
    end = len(world.log)
    answer = world.propose([2, 1, 0])
    assert (answer.code, answer.partition_epoch) == (0, 0)
    assert len(world.log) == end


def test_whole_request_needs_the_current_broker_epoch(world: Any) -> None:
    request = world.proposal([0, 1])
    world.start(0)
    answer = world.ask(request)
    assert (answer.reason, answer.code) == ("StaleBrokerEpoch", 77)


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"topic_id": UUID(int=5)}, 100),
        ({"index": 9}, 3),
        ({"leader_epoch": 4}, 41),
        ({"partition_epoch": 9}, 41),
        ({"recovery": Recovery.RECOVERING}, 42),
    ],
)
def test_refused_proposal_changes_nothing(world: Any, fields: dict[str, Any], code: int) -> None:
    end = len(world.log)
    request = world.proposal([0, 1])
    changed = tuple(replace(one, **fields) for one in request.proposals)
    (answer,) = world.ask(replace(request, proposals=changed)).partitions
    assert answer.code == code
    assert answer.message
    assert len(world.log) == end


@pytest.mark.parametrize(
    ("isr", "problem"),
    [([0, 1, 1], "twice"), ([0, 1, 7], "has no replica"), ([1, 2], "does not contain the leader")],
)
def test_malformed_isr_is_invalid(world: Any, isr: list[int], problem: str) -> None:
    answer = world.propose(isr)
    assert answer.code == 42
    assert problem in answer.message


def test_alter_partition_rejects_isr_growth_during_recovery(world: Any) -> None:
    """3.2, check 7: the leader of an unclean election ends its recovery alone, or in one step."""
    world.commit(
        PartitionsChanged(
            cause="test",
            topic_id=world.p().topic_id,
            ranges=((0, 0),),
            isr=(0,),
            elr=(1, 2),
            recovery=Recovery.RECOVERING,
        )
    )
    refused = world.propose([0, 1], recovery=Recovery.RECOVERING)
    assert (refused.code, world.p().isr) == (42, (0,))
    assert "no replica may join the ISR while the leader recovers the partition" in refused.message
    assert world.propose([0], recovery=Recovery.RECOVERING).code == 0
    assert world.p().recovery is Recovery.RECOVERING
    assert world.propose([0, 1]).code == 0
    assert (world.p().isr, world.p().recovery) == ((0, 1), Recovery.RECOVERED)


def test_old_leader_hears_that_it_is_fenced(world: Any) -> None:
    """S12: the zombie's shrink proposals go nowhere."""
    request = world.proposal([0])
    world.beat(0, want_fence=True)
    answer = world.ask(request).partitions[0]
    assert answer.code == 74


def test_follower_may_not_propose(world: Any) -> None:
    assert world.propose([1, 2], sender=1).code == 42


def test_lost_reply_is_answered_with_the_version(world: Any) -> None:
    """S30: the leader resends with the old PE ⇒ 95."""
    request = world.proposal([0, 1])
    assert world.ask(request).partitions[0].code == 0
    assert world.ask(request).partitions[0].code == 95


def test_raised_min_isr_is_known_before_a_shrink(world: Any) -> None:
    """S24: 95 (PE moved); the leader learns m first."""
    world.declare(min_isr=1)
    request = world.proposal([0])
    world.declare(min_isr=2)
    assert world.ask(request).partitions[0].code == 95
    assert world.p().min_isr == 2


def test_stale_lifetime_of_a_member_is_ineligible(world: Any) -> None:
    """S09 (KIP-903): the proposal that carries 2:BE-old gets 107."""
    old = world.image.brokers[2].broker_epoch
    world.start(2)
    members = (IsrMember(broker_id=0, broker_epoch=None), IsrMember(broker_id=2, broker_epoch=old))
    answer = world.propose([], new_isr=members)
    assert answer.code == 107
    assert "stale broker epoch" in answer.message


def test_member_without_epoch_passes_on_registered_state(world: Any) -> None:
    members = tuple(IsrMember(broker_id=b, broker_epoch=None) for b in (0, 2))
    assert world.propose([], new_isr=members).code == 0


def test_fenced_member_is_ineligible(world: Any) -> None:
    world.beat(2, want_fence=True)
    answer = world.propose([0, 1, 2])
    assert answer.code == 107
    assert "fenced" in answer.message


def test_staleness_is_told_before_a_wrong_proposal(world: Any) -> None:
    """The first failing check wins: 2, 3, 4, 5 come before 6, 7, 8."""
    world.propose([0, 1])
    assert world.propose([7, 7], partition_epoch=0).code == 95
    assert world.propose([7, 7], sender=1, partition_epoch=0).code == 42
    assert world.propose([7, 7], leader_epoch=9, partition_epoch=0).code == 41


def test_alter_partition_rejects_one_proposal_and_commits_another(
    new_world: Any,
) -> None:
    world = new_world(3)
    world.declare(partitions=6)
    good, bad = world.proposal([0, 1], 0), world.proposal([0, 9], 3)
    both = replace(good, proposals=(*bad.proposals, *good.proposals))
    answers = world.ask(both).partitions
    assert [(answer.index, answer.code) for answer in answers] == [(3, 42), (0, 0)]
    assert world.p(0).isr == (0, 1)
    assert set(world.p(3).isr) == {0, 1, 2}


def test_moved_leadership_is_committed_but_told(world: Any) -> None:
    """S32: 108 although the change is committed."""
    world.start(3)
    move = {"replicas": (0, 1, 2, 3), "adding": (3,), "removing": (0,)}
    world.commit(
        PartitionsChanged(cause="moving", topic_id=world.p().topic_id, ranges=((0, 0),), **move)
    )
    answer = world.propose([0, 1, 2, 3])
    assert answer.code == 108
    assert (world.p().leader, world.p().isr, world.p().replicas) == (1, (1, 2, 3), (1, 2, 3))


def test_alter_partition_rejects_replica_granted_a_restart(
    world: Any,
) -> None:
    """It is about to leave again, and must not count: the grant was given without it."""
    world.propose([0, 1])

    def restarted(pod_uid: str) -> None:
        world.register(2, clean=True, pod_uid=pod_uid)
        world.now_ms += world.settings.flap_wait_ms_max
        assert not world.beat(2).is_fenced

    restarted("old")
    world.commit(RestartGranted(cause="x", broker_id=2, broker_epoch=None, pod_uid="old"))
    answer = world.propose([0, 1, 2])
    assert answer.code == Reason.IneligibleReplica.code
    assert "about to be restarted" in answer.message
    restarted("new")
    assert world.propose([0, 1, 2]).code == 0


def test_alter_partition_admits_delayed_broker_below_min_isr(world: Any) -> None:
    world.declare("two", strategy="Explicit", assignment=((0, 1, 2),), min_isr=3)
    world.kill(2)
    world.register(2)
    assert not world.beat(2).is_fenced, "topic two waits for it"
    refused = world.propose([0, 1, 2])
    assert refused.code == Reason.IneligibleReplica.code
    assert "has failed repeatedly" in refused.message
    assert world.propose([0, 1, 2], name="two").code == 0
    world.now_ms += 2_000
    assert world.propose([0, 1, 2]).code == 0


def test_alter_partition_keeps_held_back_member(world: Any) -> None:
    world.declare("two", strategy="Explicit", assignment=((0, 1, 2),), min_isr=3)
    world.kill(2)
    world.register(2)
    world.beat(2)
    world.propose([0, 1, 2], name="two")
    assert world.propose([0, 2], name="two").code == 0
