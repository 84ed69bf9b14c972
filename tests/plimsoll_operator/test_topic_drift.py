"""What statuses say of moves: bytes, rates, time left, and drift from the formula."""

from typing import Any

import pytest
from tests.plimsoll_operator.builders import TOPIC_ID, an_image, isr_changed, replay, with_topic
from tests.plimsoll_operator.moving import MIB, Moves

from plimsoll_core.cluster.model import PartitionKey
from plimsoll_operator.api.quantities import binary
from plimsoll_operator.reconcile.topic.topic_status import drift, drifted, move, reconciling
from plimsoll_operator.status.copy_meter import Meter, copied


class TestMeter:
    def test_rate_and_time_left(self):
        scene = Moves()
        image = replay(
            scene.deciding.image,
            isr_changed(0, (0, 1, 2), replicas=(3, 0, 1, 2), adding=(3,), removing=(2,)),
        )
        p = image.partitions[PartitionKey(TOPIC_ID, 0)]
        meter = Meter()

        def read(held: int, now_ms: int) -> Any:
            return meter.read([p], {p.key: {0: 1000, 3: held}}, now_ms)

        assert read(0, 0).rate is None
        assert (read(100, 1_000).rate, read(200, 2_000).eta_seconds) == (100, 8)
        assert read(200, 12_000).rate == 16
        assert read(200, 30_000).eta_seconds is None, "nothing was copied lately"
        assert read(50, 31_000).copied == 50, "the copy began anew"

    def test_new_replica_in_sync_is_whole(self):
        image = replay(
            with_topic(an_image((0, 1, 2, 3)), ((0, 1, 2),)),
            isr_changed(0, (0, 3), replicas=(3, 0, 1, 2), adding=(3,), removing=(2,)),
        )
        p = image.partitions[PartitionKey(TOPIC_ID, 0)]
        assert copied(p, {0: 70, 3: 60}).copied == 70
        assert copied(p, {3: 60}) is None

    @pytest.mark.parametrize(
        ("count", "text"),
        [
            (0, "0"),
            (1023, "1023"),
            (1024, "1Ki"),
            (5000, "5000"),
            (12_000, "12Ki"),
            (9 * 2**30, "9Gi"),
            (1200 * MIB, "1200Mi"),
            (10 * 2**30, "10Gi"),
            (MIB + 1, "1024Ki"),
        ],
    )
    def test_bytes_as_people_read_them(self, count: int, text: str):
        assert binary(count) == text


class TestPlaced:
    def topic(self, rows: Any, brokers: tuple[int, ...]) -> Any:
        image = with_topic(an_image(brokers), rows)
        topic = image.topics[TOPIC_ID]
        partitions = [image.partitions[PartitionKey(TOPIC_ID, n)] for n in range(len(rows))]
        return image, topic, partitions

    def test_broker_that_came_later_is_drift(self):
        rows = ((0, 1), (1, 2), (2, 0), (0, 2), (1, 0), (2, 1))
        image, topic, partitions = self.topic(rows, (0, 1, 2))
        assert drifted(image, topic, partitions, "Preferred") == 0
        image, topic, partitions = self.topic(rows, (0, 1, 2, 3))
        count = drifted(image, topic, partitions, "Preferred")
        assert count == 4
        found = drift(image, count, 6)
        assert (found.status, found.reason) == ("True", "BrokerAdded")
        assert "4 of 6" in found.message

    async def test_move_shows_in_the_topic(self):
        scene = Moves()
        await scene.look()
        await scene.tell(0, 100 * MIB)
        moving = [scene.p(0), scene.p(1)]
        shown = move(moving, Meter(), scene.deciding.soft.copies, 0)
        assert (shown.partitions, shown.bytes_left) == (2, "200Mi")
        found = reconciling(moving)
        assert (found.status, found.reason) == ("True", "MovingReplicas")
        assert move([], Meter(), {}, 0) is None
        assert reconciling([]).status == "False"
