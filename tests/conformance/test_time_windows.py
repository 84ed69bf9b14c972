"""Windows of time: a reader of [begin, end) gets every record of it, whatever the codec."""

from __future__ import annotations

import confluent_kafka
import pytest
from tests.conformance.conftest import Peer

RECORDS, STEP_MS = 100, 1_000
BASE_MS = 1_700_000_000_000
WAIT_S = 20


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_time_window_of_one_batch_is_exact(peer: Peer, peer_topic: str, codec: str) -> None:
    """A hundred records a second apart in one batch: ten lie in [50 s, 60 s)."""
    batched = {"compression.type": codec, "linger.ms": 5_000, "batch.num.messages": RECORDS}
    producer = confluent_kafka.Producer({**peer.librdkafka, **batched})
    for number in range(RECORDS):
        producer.produce(
            peer_topic, b"%d" % number, timestamp=BASE_MS + number * STEP_MS, partition=0
        )
    assert producer.flush(WAIT_S) == 0
    consumer = confluent_kafka.Consumer({**peer.librdkafka, "group.id": "windows"})
    try:
        ends = [
            consumer.offsets_for_times(
                [confluent_kafka.TopicPartition(peer_topic, 0, BASE_MS + second * STEP_MS)],
                timeout=WAIT_S,
            )[0].offset
            for second in (0, 50, 60, RECORDS)
        ]
    finally:
        consumer.close()
    assert ends == [0, 50, 60, confluent_kafka.OFFSET_END]
