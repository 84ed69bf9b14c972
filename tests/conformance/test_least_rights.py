"""Kafka Connect and MirrorMaker 2 in a closed cluster: over TLS, with a password, and with the
rights that docs/clients.md and examples/mirror/both-ways have for them and no others."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from tests.conformance import mirroring
from tests.conformance.apache_kafka import ApacheKafka
from tests.conformance.applications import Application, Connect, connect, mirror_maker, replicated
from tests.conformance.closed_cluster import (
    Decision,
    allows,
    as_user,
    closed_cluster,
    decided,
    documented,
    is_of,
    onlooker,
    rules_of,
    without,
)
from tests.conformance.conftest import PARTITIONS, Peer
from tests.conformance.sites import declared_user
from tests.integration.local_cluster import LocalCluster, wait_for

FILE = "org.apache.kafka.connect.file.FileStream"
MIRROR = "org.apache.kafka.connect.mirror.Mirror"
BYTES = "org.apache.kafka.connect.converters.ByteArrayConverter"
HERE, THERE = "east", "west"
CONNECT, MIRRORING = "connect", f"mirror-{HERE}"
CLUSTER = {"name": "main"}
TOPIC = "orders"
EACH = 50
PATIENCE_S = 240.0
WOULD = "WouldDeny"
pytestmark = pytest.mark.timeout(900)

ACLS = Decision(f"User:{MIRRORING}", "Describe", "Cluster:kafka-cluster")
"""To copy ACLs, which is documented to be left out."""
PRODUCER = Decision(f"User:{MIRRORING}", "Write", "Topic:any")
"""What an idempotent producer needs of some topic: it is one that it writes."""


@dataclass(frozen=True, kw_only=True)
class Sides:
    """This cluster and the other one: as tests see them, and as MirrorMaker 2 does."""

    here: Peer
    there: Peer
    # By alias.
    clusters: dict[str, Peer]
    mirrored: mirroring.Mirrored


def both_users() -> list[dict[str, Any]]:
    """Of Connect and of MirrorMaker 2, as they are documented, in one cluster."""
    connecting = [one for one in documented("User") if one["metadata"]["name"] == CONNECT]
    mirrors = declared_user("both-ways", HERE)
    return [*connecting, {**mirrors, "spec": {**mirrors["spec"], "clusterRef": CLUSTER}}]


def sides(running: LocalCluster, kafka: Peer) -> Sides:
    """The topic is on both, with records, and with a group that has read them."""
    there = replace(kafka, java_login={"security.protocol": "PLAINTEXT"})
    found = Sides(
        here=onlooker(running),
        there=there,
        clusters={HERE: as_user(running, MIRRORING), THERE: there},
        mirrored=mirroring.Mirrored(topic=TOPIC, group=f"{TOPIC}-readers"),
    )
    for peer in (found.here, found.there):
        found.mirrored.fill(peer, EACH)
    return found


@contextmanager
def nothing_is_denied(place: Path, kafka: Peer) -> Iterator[tuple[LocalCluster, Sides]]:
    """Of what is done with the documented rights."""
    with closed_cluster(place, "Enforce", both_users()) as running:
        yield running, sides(running, kafka)
    assert decided(running, "Denied") == set()


@contextmanager
def worker(place: Path, running: LocalCluster) -> Iterator[Connect]:
    """Of Connect, with the login of its user in each of its clients."""
    login = as_user(running, CONNECT)
    configs = {"group.id": "connect-cluster"}
    for prefix in ("", "producer.", "consumer.", "admin."):
        configs |= {f"{prefix}{name}": text for name, text in login.java.items()}
    with connect(place / "workers", login.bootstrap, workers=1, **configs) as found:
        yield found


def copy_lines(running: Connect, place: Path) -> None:
    """From a file through a topic to a file."""
    source, sink = place / "source", place / "sink"
    source.write_text("".join(f"line {number}\n" for number in range(EACH)))
    common = {"tasks.max": "1"}
    running.create(
        "lines-source",
        {
            **common,
            "connector.class": f"{FILE}SourceConnector",
            "topic": "lines",
            "file": str(source),
            "topic.creation.default.replication.factor": "3",
            "topic.creation.default.partitions": "1",
        },
    )
    running.create(
        "lines-sink",
        {
            **common,
            "connector.class": f"{FILE}SinkConnector",
            "topics": "lines",
            "file": str(sink),
            "consumer.override.auto.offset.reset": "earliest",
        },
    )
    running.wait_for(
        "all lines", lambda: sink.exists() and sink.read_text() == source.read_text(), PATIENCE_S
    )


def start_mirror_connectors(running: Connect, of: Sides) -> None:
    """Both ways; each producer goes where its records go, and not where its worker has its own."""
    for source, target in ((HERE, THERE), (THERE, HERE)):
        configs = {
            "tasks.max": "1",
            "source.cluster.alias": source,
            "target.cluster.alias": target,
            "topics": of.mirrored.topic,
            "groups": of.mirrored.group,
            "sync.topic.acls.enabled": "false",
            **dict.fromkeys(("key.converter", "value.converter", "header.converter"), BYTES),
            **mirroring.SOON,
            **replicated(of.clusters[source], of.clusters[target]),
        }
        ends = {
            "source.cluster.": source,
            "target.cluster.": target,
            "producer.override.": target,
        }
        for prefix, alias in ends.items():
            login = of.clusters[alias].java
            configs |= {f"{prefix}{name}": text for name, text in login.items()}
        for kind in ("Source", "Checkpoint", "Heartbeat"):
            connector = {"connector.class": f"{MIRROR}{kind}Connector"}
            running.create(f"{kind.lower()}-{target}", {**configs, **connector})


def wait_until_mirrored(of: Sides, told: Callable[[], str]) -> None:
    """Both ways; and a partition that is added, from there to here: it needs a right here."""
    arrive(of.mirrored, of.here, f"{THERE}.{TOPIC}", of.there, told)
    arrive(of.mirrored, of.there, f"{HERE}.{TOPIC}", of.here, told)
    of.mirrored.grow(of.there)
    more = PARTITIONS + 1
    wait(
        "one partition more",
        lambda: mirroring.partitions_of(of.here, f"{THERE}.{TOPIC}") == more,
        told,
    )


def arrive(
    mirrored: mirroring.Mirrored, target: Peer, topic: str, source: Peer, told: Callable[[], str]
) -> None:
    """Records, configs, the group's offsets, and heartbeats of both sides."""
    where = f"of {topic} in {target.name}"
    wait(f"records {where}", lambda: mirroring.is_there(target, topic, source, EACH), told)
    assert mirroring.retention(target, topic) == mirroring.RETENTION_MS
    read = [EACH] * PARTITIONS
    wait(f"offsets {where}", lambda: mirrored.committed(target, topic) == read, told)
    for beat in ("heartbeats", topic.replace(TOPIC, "heartbeats")):
        wait(beat, lambda: mirroring.holds_records(target, beat), told)  # noqa: B023


def wait(what: str, condition: Callable[[], object], told: Callable[[], str]) -> None:
    """`told`: what the application said, for whoever reads that it never came."""
    try:
        wait_for(what, condition, PATIENCE_S, 0.5)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{told()}") from None


@pytest.mark.long
@pytest.mark.client("Kafka Connect 4.1", "TLS")
@pytest.mark.client("Kafka Connect 4.1", "least rights")
@pytest.mark.client("MirrorMaker 2 4.1", "TLS")
@pytest.mark.client("MirrorMaker 2 4.1", "least rights")
def test_connectors_need_only_documented_rights(apache_kafka: Peer, tmp_path: Path) -> None:
    with (
        nothing_is_denied(tmp_path, apache_kafka) as (running, of),
        worker(tmp_path, running) as connected,
    ):
        start_mirror_connectors(connected, of)
        copy_lines(connected, tmp_path)
        wait_until_mirrored(of, connected.said)


@pytest.fixture
def empty_kafka(tmp_path: Path) -> Iterator[Peer]:
    """The documented names are free in it."""
    with ApacheKafka(tmp_path / "kafka") as kafka:
        yield Peer(name="kafka", bootstrap=kafka.bootstrap, replicas=1)


@contextmanager
def by_itself(place: Path, of: Sides, **more: str) -> Iterator[Application]:
    """MirrorMaker 2, not as connectors of somebody's workers."""
    copied = {"topics": TOPIC, "groups": of.mirrored.group, "sync.topic.acls.enabled": "false"}
    running = mirror_maker(place / "mirror", of.clusters, {**copied, **mirroring.SOON, **more})
    try:
        yield running
    finally:
        running.stop()


@pytest.mark.full
@pytest.mark.client("MirrorMaker 2 4.1", "least rights")
def test_mirror_maker_needs_only_documented_rights(empty_kafka: Peer, tmp_path: Path) -> None:
    with nothing_is_denied(tmp_path, empty_kafka) as (_, of), by_itself(tmp_path, of) as mirror:
        wait_until_mirrored(of, mirror.said)


@pytest.mark.full
@pytest.mark.client("Kafka Connect 4.1", "least rights")
def test_connect_without_create_right_makes_no_topic(tmp_path: Path) -> None:
    users = [one for one in documented("User") if one["metadata"]["name"] == CONNECT]
    objects = [*without("Create", users), *documented("Topic")]
    with closed_cluster(tmp_path, "Enforce", objects) as running:
        with worker(tmp_path, running) as connected:
            copy_lines(connected, tmp_path)
        made = onlooker(running)
        topics = AdminClient(made.librdkafka).list_topics(timeout=10).topics
    declared = {one["metadata"]["name"] for one in documented("Topic")}
    assert {name for name in topics if not name.startswith("__")} == declared
    # Workers try, and go on with what there is.
    assert {one.operation for one in decided(running, "Denied")} == {"Create"}


@pytest.mark.full
@pytest.mark.client("Kafka Connect 4.1", "least rights")
@pytest.mark.client("MirrorMaker 2 4.1", "least rights")
def test_each_documented_right_is_asked_for(empty_kafka: Peer, tmp_path: Path) -> None:
    users = both_users()
    bare = [{**one, "spec": {**one["spec"], "acls": []}} for one in users]
    with closed_cluster(tmp_path, "Audit", bare) as running:
        of = sides(running, empty_kafka)
        with worker(tmp_path, running) as connected:
            start_mirror_connectors(connected, of)
            copy_lines(connected, tmp_path)
            wait_until_mirrored(of, connected.said)
        # What they find when they start again they check.
        with worker(tmp_path, running) as connected:
            wait("a start again", lambda: connected.runs("lines-sink"), connected.said)
        with by_itself(tmp_path, of, **{"sync.topic.acls.enabled": "true"}) as mirror:
            wait("ACLs", lambda: ACLS in decided(running, WOULD), mirror.said)
        with by_itself(tmp_path, of) as mirror:
            wait(
                "each right is asked for",
                lambda: not unasked(running),
                lambda: f"{unasked(running)} are not\n{mirror.said()}",
            )
    more = {
        asked
        for asked in decided(running, WOULD)
        if not any(allows(*rule, asked) for rule in documented_rights())
    }
    assert more == {ACLS, PRODUCER}


@cache
def documented_rights() -> list[tuple[Decision, bool]]:
    """Of both users; and whether each one's name is a prefix."""
    return [rule for user in both_users() for rule in rules_of(user)]


def unasked(running: LocalCluster) -> list[Decision]:
    """Documented rights that nothing has needed yet."""
    asked = decided(running, WOULD)
    return [
        rule
        for rule, prefix in documented_rights()
        if not any(is_of(one, rule, prefix) for one in asked)
    ]
