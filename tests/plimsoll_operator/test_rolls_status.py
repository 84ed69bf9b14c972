"""What a roll looks like: conditions, rows, Events and metrics."""

from tests.plimsoll_operator.builders import a_cluster, an_image, replay, with_topic
from tests.plimsoll_operator.rolling import NEW, declare
from tests.plimsoll_operator.rolling import a_cluster as running_cluster
from tests.plimsoll_operator.shown import Shows, metrics_of

from plimsoll_core.cluster.records import BrokerShutdownStarted, RestartEnded, RestartGranted
from plimsoll_core.ids import BrokerEpoch, BrokerId
from plimsoll_operator.api.broker_configs import settings_of
from plimsoll_operator.api.cluster_status import BlockedAction
from plimsoll_operator.reconcile.blocked_actions import blocked_condition
from plimsoll_operator.reconcile.cluster.membership import settling_condition
from plimsoll_operator.reconcile.shared.broker_rolls import Rolling, rolls_condition
from plimsoll_operator.status.cluster_conditions import cluster_conditions
from plimsoll_operator.status.cluster_counts import cluster_status
from plimsoll_operator.status.record_events import occurrences

ROW = BlockedAction(
    action="Restart",
    broker=2,
    topic="shop.orders",
    partition=7,
    reason="WouldDropBelowMinISR",
    until="broker 0 rejoins the ISR of shop.orders-7",
    since="2026-11-21T10:00:00Z",
)


def test_blocked_condition_states_what_the_restart_waits_for():
    found = blocked_condition((ROW,))
    assert (found.status, found.reason) == ("True", "WouldDropBelowMinISR")
    assert found.message == (
        "Restart of broker 2 waits until broker 0 rejoins the ISR of shop.orders-7."
    )


def test_blocked_actions_metric_has_count_and_start_time():
    shows = Shows()
    shows.waits = [(("kafka", "main"), [ROW, ROW])]
    metrics = metrics_of(shows)
    text = metrics.render().decode()
    labels = (
        'action="Restart",broker="2",cluster="main",namespace="kafka",reason="WouldDropBelowMinISR"'
    )
    assert f"plimsoll_blocked_actions{{{labels}}} 2.0" in text
    assert f"plimsoll_blocked_action_start_time_seconds{{{labels}}} 1.7952" in text


def test_cluster_stays_ready_while_a_broker_stops():
    image = with_topic(an_image(), ((0, 1, 2),))
    epoch = BrokerEpoch(image.brokers[BrokerId(1)].broker_epoch)
    stopping = BrokerShutdownStarted(cause="shutdown", broker_id=BrokerId(1), broker_epoch=epoch)
    image = replay(image, stopping)
    ready, _ = cluster_conditions(image, cluster_status(image, a_cluster()))
    assert (ready.status, ready.reason) == ("True", "Serving")


def test_roll_says_how_far_it_is():
    rolling = Rolling(revisions=("abc",), current=1, total=3, away=((0, ""), (4, "ErrImagePull")))
    found = rolls_condition(rolling)
    assert (found.type, found.status, found.reason) == ("Reconciling", "True", "RollingBrokers")
    assert found.message.startswith("1 of 3 brokers run revision abc of the pod template.")
    assert "Broker 4 is being restarted (ErrImagePull)." in found.message


def test_edit_that_settles_is_not_done():
    found = settling_condition((0, 2, 3))
    assert (found.status, found.reason) == ("True", "Settling")
    assert "brokers 0, 2 and 3" in found.message


def test_grants_and_returns_are_events():
    image = an_image()
    grant = RestartGranted(cause="restart", broker_id=BrokerId(0), revision="abc")
    back = RestartEnded(cause="restart", broker_id=BrokerId(0), proven="abc")
    void = RestartEnded(cause="it runs another revision", broker_id=BrokerId(0))
    told = [
        event.message
        for records in ((grant,), (back,), (void,))
        for event in occurrences(image, image, records)
    ]
    assert told == [
        "Broker 0 is being restarted, so that its pod runs revision abc of its template.",
        "The restart of broker 0 is complete: it is back and in sync everywhere.",
        "The restart of broker 0 was abandoned: it runs another revision.",
    ]


def test_maintenance_reaches_the_decisions():
    plain = settings_of(a_cluster())
    assert (plain.maintenance_suspended, plain.exposed_topics) == (False, "Interrupt")
    found = settings_of(a_cluster(maintenance={"suspended": True, "exposedTopics": "Block"}))
    assert (found.maintenance_suspended, found.exposed_topics) == (True, "Block")


async def test_suspended_maintenance_starts_nothing_and_says_so():
    three = await running_cluster((0, 1, 2))
    maintenance = {"suspended": True}
    declare(three, **NEW, maintenance=maintenance)
    three.deciding.settings = settings_of(a_cluster(maintenance=maintenance))
    await three.look()
    assert three.start_pods() == []
    assert three.blocked == [
        (b, "MaintenanceSuspended", "spec.maintenance.suspended is false") for b in range(3)
    ]
