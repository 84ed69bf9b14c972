"""MirrorMaker 2 between Plimsoll and Apache Kafka, both ways: topics with their configs and
records, and the offsets of groups.  Its connectors do the same in `test_least_rights`, in every
run; by itself it is a JVM more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.conformance import mirroring
from tests.conformance.applications import Application, mirror_maker
from tests.conformance.conftest import PARTITIONS, Peer
from tests.integration.local_cluster import wait_for

EACH = 100
MIRRORED_S = 150
MIRRORED = mirroring.Mirrored(topic="mirrored", group="readers")


@pytest.fixture
def running(peer: Peer, apache_kafka: Peer, tmp_path: Path) -> Iterator[Application]:
    """Started by a test that asks for it."""
    of = {"topics": MIRRORED.topic, "groups": MIRRORED.group, **mirroring.SOON}
    started = mirror_maker(tmp_path, {"here": peer, "there": apache_kafka}, of)
    yield started
    started.stop()


@pytest.mark.full
@pytest.mark.client("MirrorMaker 2 4.1", "writes and reads")
@pytest.mark.client("MirrorMaker 2 4.1", "offsets")
@pytest.mark.client("MirrorMaker 2 4.1", "topics and configs")
def test_mirror_maker_copies_both_ways_with_offsets(
    peer: Peer, apache_kafka: Peer, request: pytest.FixtureRequest
) -> None:
    for one in (peer, apache_kafka):
        MIRRORED.fill(one, EACH)
    running = request.getfixturevalue("running")
    ways = ((peer, "there.mirrored", apache_kafka), (apache_kafka, "here.mirrored", peer))
    for target, topic, source in ways:
        wait_for(
            f"{topic} in {target.name}: {running.said()}",
            lambda: mirroring.is_there(target, topic, source, EACH),  # noqa: B023
            MIRRORED_S,
            1,
        )
        assert mirroring.retention(target, topic) == mirroring.RETENTION_MS
    for source in (peer, apache_kafka):
        MIRRORED.produce(source, range(PARTITIONS), EACH, 2 * EACH)
        MIRRORED.commit(source, range(PARTITIONS))
    for target, topic, source in ways:
        what = f"offsets of {topic} in {target.name}"
        done = [2 * EACH] * PARTITIONS
        wait_for(
            what,
            lambda: MIRRORED.committed(target, topic) == done,  # noqa: B023
            MIRRORED_S,
            1,
        )
        assert mirroring.is_there(target, topic, source, 2 * EACH)
