"""What a Rebalance says while it waits for approval, and how long it says that it will take."""

from tests.plimsoll_operator.builders import isr_changed, replay
from tests.plimsoll_operator.rebalancing import KEY, Rebalancings
from tests.plimsoll_operator.test_rebalance_handler import conditions, says

from plimsoll_core.cluster.model import Rebalance as Row
from plimsoll_core.cluster.model import RebalanceObject
from plimsoll_operator.reconcile.rebalance.rebalance_status import View, eta_seconds, status_of
from plimsoll_operator.status.copy_meter import Meter


async def test_approved_plan_is_never_asked_again():
    """The approval and what it leads to are seen one after the other."""
    scene = Rebalancings()
    status = await scene.look()
    scene.change(approvedPlan=status.plan.hash)
    found = scene.objects.rebalances.get(KEY)
    assert found is not None
    view = View(
        image=scene.deciding.image,
        answer=None,
        plan=status.plan,
        planned=None,
        meter=Meter(),
        seen=({}, 0),
    )
    shown = status_of(found, view)
    assert conditions(shown)["Ready"] == ("False", "Starting")


async def test_plan_affected_by_running_moves_says_so():
    scene = Rebalancings()
    await scene.look()
    key = next(iter(scene.deciding.image.partitions))
    p = scene.deciding.image.partitions[key]
    moving = isr_changed(p.index, p.isr, adding=(4,), replicas=(*p.replicas, 4))
    scene.deciding.image = replay(scene.deciding.image, moving)
    assert "approve it when they are done" in says(await scene.look(), "Ready")


def test_time_left_includes_many_small_partitions():
    """Their bytes are nothing; each round of moves takes its time."""
    row = Row(
        object=RebalanceObject(namespace="kafka", name="fill", uid="b1"),
        mode="AddBrokers",
        phase="Running",
        total=400,
        moved=100,
        started_ms=1_000_000,
    )
    assert eta_seconds(row, 1_010_000, 0, None) == 30
    assert eta_seconds(row, 1_010_000, 1_000, 1) == 1_000
