"""What a Rebalance says to those who only read Events."""

from tests.plimsoll_operator.rebalancing import Rebalancings

from plimsoll_operator.status.events import Occurrence
from plimsoll_operator.status.record_events import occurrences

MIB = 2**20


async def test_events_report_start_pause_and_end():
    scene = Rebalancings(approval="Automatic")
    before = scene.deciding.image
    await scene.look()
    told = list(occurrences(before, scene.deciding.image, scene.deciding.records))
    total = scene.row.total
    assert {(o.key, o.message) for o in told} == {
        (
            "rebalance-b1-Running-False",
            f"Rebalance fill started: it moves {total} partitions and copies 6 replicas.",
        )
    }, "the same key is the same Event"
    before, done = scene.deciding.image, len(scene.deciding.records)
    scene.change(approval="Automatic", cancelled=True)
    await scene.look()
    told = list(occurrences(before, scene.deciding.image, scene.deciding.records[done:]))
    assert [o.reason for o in told] == ["RebalanceCancelled"]


async def test_event_tells_of_each_plan_that_waits_once():
    scene = Rebalancings()
    told: list[Occurrence] = []
    scene.effects.tell = told.append
    await scene.tell(100 * MIB)
    plan = (await scene.look()).plan
    first, leaders = plan.hash, plan.moves.leaders
    await scene.look()
    assert [(o.reason, o.message) for o in told] == [
        (
            "RebalanceAwaitsApproval",
            "Rebalance fill waits for approval: set spec.approvedPlan to the hash in "
            f"status.plan.hash (6 replicas and {leaders} leaders move, 600Mi are copied).",
        )
    ]
    scene.change(mode="RemoveBrokers", brokers=[0])
    second = (await scene.look()).plan.hash
    assert second != first
    assert len(told) == 2
    assert not any(name in o.message for o in told for name in (first, second)), "it may change"
    scene.change(3, mode="RemoveBrokers", brokers=[0], approvedPlan=second)
    await scene.look()
    assert len(told) == 2
