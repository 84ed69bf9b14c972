"""Status says what is committed: placement, health, what waits for whom, and nothing more."""

from typing import Any

import msgspec
from msgspec.structs import replace
from tests.plimsoll_operator.builders import (
    TOPIC_ID,
    a_cluster,
    a_cluster_body,
    an_image,
    isr_changed,
    replay,
    with_topic,
)
from tests.plimsoll_operator.terms import Scene

from plimsoll_core.cluster.listeners import Advertised, Listener
from plimsoll_core.cluster.model import ClusterImage, Endpoint, PartitionKey, PendingDeletion
from plimsoll_core.cluster.records import (
    BrokerFenced,
    BrokersLeaving,
    BrokerUpdated,
    ListenersConfigured,
    MembersChanged,
    PartitionsChanged,
    TopicOrphaned,
)
from plimsoll_core.cluster.topic_names import GROUP_OFFSETS
from plimsoll_core.controller.kernel.decision import DecisionContext
from plimsoll_core.controller.kernel.settings import Settings
from plimsoll_core.controller.kernel.volatile_state import Report, VolatileState
from plimsoll_core.controller.partitions.unclean_recovery import outlook
from plimsoll_core.ids import BrokerId
from plimsoll_operator.api.cluster_status import ListenerAddress
from plimsoll_operator.api.topic import EstimatedLoss, TopicStatus
from plimsoll_operator.reconcile.cluster import logcluster_status
from plimsoll_operator.reconcile.topic.topic_status import Sight, topic_status
from plimsoll_operator.status.cluster_conditions import cluster_conditions
from plimsoll_operator.status.cluster_counts import cluster_status, groups_status

ROWS = ((0, 1, 2), (0, 2, 1), (1, 2, 0))
SINCE_MS = 1_000


def shown(image: ClusterImage, soft: VolatileState | None = None, **settings: Any) -> TopicStatus:
    turn = DecisionContext(
        image=image, soft=soft or VolatileState(), now_ms=0, settings=Settings(**settings)
    )
    sight = Sight(outlook=lambda p: outlook(turn, p), since_ms=lambda _: SINCE_MS)
    return topic_status(image, image.topics[TOPIC_ID], sight)


def test_assignment_is_indexed_by_partition():
    image = with_topic(an_image(), ROWS)
    status = shown(image)
    assert status.assignment == ("0,1,2", "0,2,1", "1,2,0")
    assert status.topic_id == "uqyfYx1RSmK4pz5p_sRKqA"


def test_topic_with_a_full_isr_is_ready():
    image = with_topic(an_image(), ROWS)
    status = shown(image)
    assert status.health is not None
    assert (status.health.full_isr, status.health.at_min_isr) == (3, 0)
    assert (status.conditions[0].status, status.conditions[0].reason) == ("True", "Serving")
    assert status.unhealthy is None


def test_topic_at_min_isr_is_still_ready():
    image = replay(with_topic(an_image(), ROWS), isr_changed(0, (0, 1)))
    status = shown(image)
    assert status.health is not None
    assert (status.health.full_isr, status.health.at_min_isr) == (2, 1)
    assert status.conditions[0].status == "True"


def test_under_min_isr_partition_names_awaited_replicas():
    image = replay(with_topic(an_image(), ROWS), isr_changed(1, (0,)))
    status = shown(image)
    assert status.conditions[0].reason == "UnderMinISR"
    assert status.unhealthy is not None
    assert (status.unhealthy[0].partition, status.unhealthy[0].waits_for) == (1, (2, 1))


def test_offline_partition_is_first_with_eligible_leaders():
    image = replay(
        with_topic(an_image(), ROWS),
        isr_changed(0, (0,)),
        isr_changed(2, (), leader=None, leader_epoch_step=1, elr=(BrokerId(2),)),
    )
    status = shown(image)
    assert status.conditions[0].reason == "PartitionsOffline"
    assert status.unhealthy is not None
    worst = status.unhealthy[0]
    assert (worst.partition, worst.leader, worst.waits_for) == (2, -1, (2,))


def test_partitions_are_listed_by_missing_replicas():
    image = replay(
        with_topic(an_image(), ROWS), isr_changed(2, (1, 2)), isr_changed(0, (1,), leader=1)
    )
    status = shown(image)
    assert status.conditions[0].reason == "UnderMinISR"
    assert status.unhealthy is not None
    assert [(p.partition, p.cause) for p in status.unhealthy] == [
        (0, "CatchingUp"),
        (2, "CatchingUp"),
    ]


def test_lists_are_shown_where_they_are_not_empty():
    image = replay(
        with_topic(an_image(), ROWS),
        isr_changed(0, (1, 2)),
        isr_changed(
            1,
            (),
            leader=None,
            leader_epoch_step=1,
            elr=(BrokerId(2),),
            last_known_elr=(BrokerId(0),),
        ),
    )
    worst, other = msgspec.to_builtins(shown(image).unhealthy)
    assert (worst["elr"], worst["lastKnownElr"], worst["leaderEpoch"]) == ((2,), (0,), 1)
    assert worst["since"] == "1970-01-01T00:00:01Z"
    assert not other.keys() & {"elr", "lastKnownElr", "estimatedLoss"}


def test_partition_awaiting_human_shows_the_cost():
    image = replay(
        with_topic(an_image(), ROWS),
        isr_changed(
            0,
            (),
            leader=None,
            leader_epoch_step=1,
            last_known_elr=(BrokerId(1), BrokerId(2)),
        ),
    )
    told = {
        BrokerId(b): Report(
            broker_epoch=image.brokers[BrokerId(b)].broker_epoch,
            leader_epoch=image.partitions[PartitionKey(TOPIC_ID, 0)].leader_epoch,
            last_written_epoch=b,
            log_end_offset=end,
        )
        for b, end in ((0, 120), (1, 90), (2, 100))
    }
    soft = VolatileState(reports={PartitionKey(TOPIC_ID, 0): told})
    status = shown(image, soft, unclean_recovery="Manual")
    assert status.unhealthy is not None
    worst = status.unhealthy[0]
    assert (worst.cause, worst.waits_for) == ("LeaderNotNamed", ())
    assert worst.estimated_loss == EstimatedLoss(leader=2, records=20)
    message = status.conditions[0].message
    assert "Partition orders-0 has no leader" in message
    assert "spec.uncleanRecovery.elect" in message


def test_assignment_is_left_out_above_200_partitions():
    image = with_topic(an_image(), ((0, 1, 2),) * 201)
    assert shown(image).assignment is None


def test_cluster_counts_partitions_by_their_worst_state():
    image = replay(
        with_topic(an_image(), (*ROWS, (2, 0, 1))),
        isr_changed(0, (0, 1)),
        isr_changed(1, (0,)),
        isr_changed(2, (), leader=None, leader_epoch_step=1),
    )
    partitions = cluster_status(image, a_cluster()).partitions
    assert partitions is not None
    assert (partitions.total, partitions.offline) == (4, 1)
    assert (partitions.under_min_isr, partitions.at_min_isr) == (1, 1)
    assert partitions.lowest_margin == -2


def test_cluster_stays_ready_in_a_planned_roll():
    image = with_topic(an_image(), ROWS)
    broker = image.brokers[BrokerId(0)]
    image = replay(
        image,
        PartitionsChanged(
            cause="shutdown",
            topic_id=TOPIC_ID,
            ranges=((0, 2),),
            isr=(BrokerId(1), BrokerId(2)),
            leader=BrokerId(1),
            leader_epoch_step=1,
        ),
        BrokerFenced(cause="shutdown", broker_id=BrokerId(0), broker_epoch=broker.broker_epoch),
    )
    status = cluster_status(image, a_cluster())
    ready, reconciling = cluster_conditions(image, status)
    assert (ready.status, ready.reason) == ("True", "Serving")
    assert (reconciling.status, reconciling.reason) == ("True", "WaitingForBrokers")


def test_leaderless_cluster_counts_arrived_brokers():
    image = with_topic(an_image(), ROWS)
    lost = {"leader": None, "leader_epoch_step": 1, "elr": (BrokerId(0),)}
    image = replay(image, *(isr_changed(index, (), **lost) for index in range(3)))
    ready, _ = cluster_conditions(image, cluster_status(image, a_cluster()))
    assert (
        ready.message == "3 of 3 partitions have no leader, such as orders-0, orders-1, orders-2."
    )
    for broker in (1, 2):
        epoch = image.brokers[BrokerId(broker)].broker_epoch
        fenced = BrokerFenced(cause="x", broker_id=BrokerId(broker), broker_epoch=epoch)
        image = replay(image, fenced)
    ready, _ = cluster_conditions(image, cluster_status(image, a_cluster()))
    assert ready.reason == "PartitionsOffline"
    assert ready.message == (
        "3 of 3 partitions have no leader, such as orders-0, orders-1, orders-2. "
        "1 of 3 brokers are ready."
    )


def test_cluster_whose_brokers_never_joined_is_not_ready():
    image = an_image(())
    ready, _ = cluster_conditions(image, cluster_status(image, a_cluster()))
    assert (ready.status, ready.reason) == ("False", "WaitingForBrokers")


def test_pending_deletion_is_shown_with_its_end():
    image = replay(
        with_topic(an_image(), ROWS),
        TopicOrphaned(
            cause="its object is gone",
            topic_id=TOPIC_ID,
            pending=PendingDeletion(since_ms=0, until_ms=86_400_000),
        ),
    )
    topics = cluster_status(image, a_cluster()).topics
    assert topics is not None
    assert topics.pending_deletion[0].until == "1970-01-02T00:00:00Z"


def test_topics_that_cannot_survive_a_restart_are_counted():
    exposure = cluster_status(with_topic(an_image(), ((0, 1),)), a_cluster()).exposure
    assert exposure is not None
    assert (exposure.replication_factor_one, exposure.replication_equals_min_isr) == (0, 1)


def lacking(image: ClusterImage, **spec: Any) -> tuple[str, ...] | None:
    found = cluster_status(image, a_cluster(**spec)).internal_topics
    return None if found is None else found.under_replicated


def test_internal_topic_with_incomplete_isr_is_named():
    image = with_topic(an_image(), ROWS, None, GROUP_OFFSETS)
    assert lacking(image) == ()
    image = replay(image, isr_changed(1, (0, 2)))
    assert lacking(image) == (GROUP_OFFSETS,)


def test_internal_topic_below_possible_replicas_is_named():
    """Until the controller has raised them: the broker that holds it alone may not be lost."""
    rows = ((0,), (1,), (2,))
    image = with_topic(an_image(), rows, None, GROUP_OFFSETS)
    assert lacking(image) == (GROUP_OFFSETS,)
    assert lacking(image, config={"offsets.topic.replication.factor": 1}) == ()
    alone = with_topic(an_image((0,)), ((0,),), None, GROUP_OFFSETS)
    assert lacking(alone) == ()


def test_missing_internal_topics_are_not_mentioned():
    assert lacking(with_topic(an_image(), ((0,),))) is None


def test_group_count_is_unknown_without_reports():
    assert groups_status([]) is None
    assert groups_status([None, None]) is None
    found = groups_status([3, None, 4])
    assert found is not None
    assert found.total == 7


def test_growing_cluster_stays_ready_saying_so():
    image = replay(
        with_topic(an_image(), ROWS),
        MembersChanged(cause="declared", broker_ids=tuple(BrokerId(b) for b in range(5))),
    )
    status = cluster_status(image, a_cluster(brokers={"count": 5}))
    ready, reconciling = cluster_conditions(image, status)
    assert (ready.status, reconciling.status) == ("True", "True")
    assert reconciling.reason == "AddingBrokers"
    assert reconciling.message == "Brokers 3 and 4 join: 3 of 5 brokers are ready."


def test_cluster_that_shrinks_says_what_is_left():
    image = replay(
        with_topic(an_image((0, 1, 2, 3)), ((0, 1, 3), (1, 2, 3))),
        BrokersLeaving(cause="declared", broker_ids=(BrokerId(3),)),
    )
    status = cluster_status(image, a_cluster())
    assert status.brokers is not None
    assert (status.brokers.desired, status.brokers.leaving) == (3, (3,))
    ready, reconciling = cluster_conditions(image, status)
    assert (ready.status, reconciling.reason) == ("True", "RemovingBrokers")
    assert reconciling.message == "Broker 3 leaves: 2 replicas remain."
    empty = replay(an_image((0, 1, 2, 3)), BrokersLeaving(cause="x", broker_ids=(BrokerId(3),)))
    _, reconciling = cluster_conditions(empty, cluster_status(empty, a_cluster()))
    assert reconciling.message == "Broker 3 leaves: it is empty and being removed."


def test_unshrinkable_cluster_counts_running_brokers():
    image = with_topic(an_image(), ROWS)
    status = cluster_status(image, a_cluster(brokers={"count": 2}))
    assert status.brokers is not None
    assert (status.brokers.active, status.brokers.desired, status.brokers.ready) == (3, 2, 2)
    ready, reconciling = cluster_conditions(image, status)
    assert (ready.status, reconciling.status) == ("True", "True")
    assert "has 3 brokers, and the spec asks for 2; the operator" in reconciling.message


def test_topic_ready_message_is_singular_for_one_partition():
    (ready,) = shown(with_topic(an_image(), ((0, 1, 2),))).conditions
    assert ready.message == "1 partition has a leader and at least min ISR."


LISTENER = Listener(name="plain", port=9094)


def with_listener(*open_on: int) -> ClusterImage:
    declared = ListenersConfigured(cause="x", listeners=(LISTENER,))
    image = replay(with_topic(an_image(), ROWS), declared)
    for broker_id in open_on:
        broker = image.brokers[BrokerId(broker_id)]
        added = Endpoint(name="plain", host=f"b{broker_id}", port=9094)
        record = BrokerUpdated(
            cause="registration",
            broker_id=broker.id,
            broker_epoch=broker.broker_epoch,
            directory_ids=broker.directory_ids,
            endpoints=(*broker.endpoints, added),
        )
        image = replay(image, record)
    return image


def test_unopened_listener_makes_cluster_unready():
    image = with_listener(0)
    why = {BrokerId(2): {"plain": "port 9094 cannot be used: Address already in use"}}
    ready, reconciling = cluster_conditions(image, cluster_status(image, a_cluster()), told=why)
    assert (ready.status, ready.reason) == ("False", "ListenerNotOpen")
    assert ready.message == (
        "Listener plain is not open on brokers 1 and 2"
        " (broker 2: port 9094 cannot be used: Address already in use)."
    )
    assert (reconciling.status, reconciling.reason) == ("True", "OpeningListeners")


def test_outside_listener_shows_addresses_and_gaps():
    told = Advertised(broker_id=BrokerId(1), host="203.0.113.7", port=31_001)
    outside = replace(LISTENER, advertised=(told,), bootstrap_servers="kafka.example.com:31000")
    image = replay(with_listener(1), ListenersConfigured(cause="x", listeners=(outside,)))
    status = cluster_status(image, a_cluster())
    assert status.listeners is not None
    (row,) = status.listeners
    assert row.bootstrap_servers == "kafka.example.com:31000"
    assert row.addresses == (ListenerAddress(id=1, host="203.0.113.7", port=31_001),)
    ready, reconciling = cluster_conditions(image, status, whys={"plain": "nobody gave one"})
    assert (ready.status, ready.reason) == ("False", "ListenerWithoutAddress")
    assert ready.message == (
        "Listener plain has no external address for brokers 0 and 2 yet: nobody gave one."
    )
    assert (reconciling.status, reconciling.reason) == ("True", "WaitingForAddresses")


def test_unusable_listener_makes_cluster_unready():
    told = tuple(Advertised(broker_id=BrokerId(b), host="h", port=31_001 + b) for b in range(3))
    for begin, reason in ((None, "ListenerWithoutAddress"), ("h:31000", "Serving")):
        outside = replace(LISTENER, advertised=told, bootstrap_servers=begin)
        image = replay(with_listener(0, 1, 2), ListenersConfigured(cause="x", listeners=(outside,)))
        ready, _ = cluster_conditions(image, cluster_status(image, a_cluster()))
        assert ready.reason == reason


def test_fully_open_listener_changes_no_condition():
    image = with_listener(0, 1)
    epoch = image.brokers[BrokerId(2)].broker_epoch
    image = replay(image, BrokerFenced(cause="x", broker_id=BrokerId(2), broker_epoch=epoch))
    ready, _ = cluster_conditions(image, cluster_status(image, a_cluster()))
    assert (ready.status, ready.reason) == ("True", "Serving")


def test_internal_topics_are_not_client_created():
    image = with_topic(an_image(), ROWS, holder=None, name=GROUP_OFFSETS)
    status = cluster_status(image, a_cluster())
    assert status.topics is not None
    assert (status.topics.declared, status.topics.client_created) == (0, 0)
    assert status.internal_topics is not None
    assert status.internal_topics.total == 1


def test_new_term_continues_the_observed_generation():
    """Until it has seen the spec: 1, 0, 1 says that an edit was not seen."""
    scene = Scene(an_image())
    written = {
        "type": "Ready",
        "status": "True",
        "reason": "Serving",
        "message": "",
        "observedGeneration": 7,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    scene.objects.clusters.put({**a_cluster_body(), "status": {"conditions": [written]}})
    draft = logcluster_status.render(scene.term, scene.term.key)
    assert draft is not None
    assert draft.generation == 7
