"""The state changes that commits request: counted from 0 for each broker, and told line by line."""

import logging

from prometheus_client import CollectorRegistry
from tests.plimsoll_operator.builders import TOPIC_ID, an_image, replay, with_topic

from plimsoll_core.cluster.records import PartitionsChanged, TopicRemoved
from plimsoll_core.ids import BrokerId
from plimsoll_operator.leadership.state_change_requests import StateChangeRequests
from plimsoll_operator.status.commit_counters import CommitCounters

KEY = ("kafka", "main")


def test_state_changes_are_counted_by_broker(caplog):
    caplog.set_level(logging.INFO, "plimsoll.state_changes")
    registry = CollectorRegistry()
    counters = CommitCounters(registry)
    counters.begin(KEY, map(BrokerId, range(3)))

    def count(broker: int, change: str) -> float | None:
        labels = {"namespace": "kafka", "cluster": "main", "broker": str(broker), "change": change}
        return registry.get_sample_value("plimsoll_state_changes_requested_total", labels)

    assert count(2, "close-replica") == 0
    requests = StateChangeRequests(KEY, counters, lambda: 0)
    image = with_topic(an_image(), ((0, 1, 2),))
    led = PartitionsChanged(
        cause="x", topic_id=TOPIC_ID, ranges=((0, 0),), leader=BrokerId(1), leader_epoch_step=1
    )
    new = replay(image, led)
    requests.committed(image, new, (led,))
    assert [count(0, "become-follower"), count(1, "become-leader")] == [1, 1]
    gone = TopicRemoved(cause="x", topic_id=TOPIC_ID)
    requests.committed(new, replay(new, gone), (gone,))
    assert [count(broker, "close-replica") for broker in range(3)] == [1, 1, 1]
    first = caplog.records[0]
    assert first.getMessage() == (
        "controller, epoch 1, requested become-follower for topic orders partition 0,"
        " to broker id 0, at epoch 1"
    )
    told = first.fields  # type: ignore[attr-defined]
    assert (told["namespace"], told["cluster"], told["stage"]) == (*KEY, "requested")
