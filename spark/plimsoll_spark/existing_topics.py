"""Finds the topics, partitions and replicas to audit, as a client sees them.

Called by `audit` and by the data sources, with a plain librdkafka client. A client sees the topics
that it may describe, and the settings of those with a configuration that it may describe.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from confluent_kafka import (
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicCollection,
    TopicPartition,
)
from confluent_kafka.admin import (
    AdminClient,
    ClusterMetadata,
    ConfigResource,
    OffsetSpec,
    PartitionMetadata,
    TopicMetadata,
)

from plimsoll_spark.audit_settings import matched
from plimsoll_spark.replica_reader import Place
from plimsoll_spark.topics import OffsetRange

TIMEOUT_S = 15.0
AWAY_S = 60.0
"""Seconds for which offsets that cannot be read, as during an election, are asked for again."""
RETRY_S = 0.5
POLICY = "cleanup.policy"
INTERNAL = "__"
_ISOLATION = {False: IsolationLevel.READ_UNCOMMITTED, True: IsolationLevel.READ_COMMITTED}


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditedPartition:
    """One partition. `log`: as the leader shows it. `replicas`: those on brokers in the cluster's
    metadata, the leader's first. `in_sync`: ids of the brokers in the ISR. `away`: the ids of the
    other brokers that have a replica."""

    topic: str
    partition: int
    log: OffsetRange
    replicas: tuple[Place, ...]
    in_sync: frozenset[int]
    away: tuple[int, ...]


class Found(NamedTuple):
    """The partitions that have a leader, and, as text, each of the others with the cause; a topic
    that the cluster does not show stands there as a whole."""

    partitions: list[AuditedPartition]
    missing: tuple[str, ...]


class ExistingTopics:
    """A client that reads metadata."""

    def __init__(self, bootstrap: str, login: Mapping[str, str]) -> None:
        """Create a client. `login`: settings of librdkafka by which to log in; empty: no login."""
        client = {"bootstrap.servers": bootstrap, "client.id": "plimsoll-audit", "log_level": 2}
        self._admin = AdminClient({**client, **login})

    def matching(self, pattern: str) -> tuple[str, ...]:
        """Return the names that match the regular expression as a whole, sorted, without internal
        topics. Raises KafkaException, and pyarrow.ArrowInvalid for a malformed pattern."""
        topics = self._admin.list_topics(timeout=TIMEOUT_S).topics
        return tuple(matched(pattern, (one for one in topics if not one.startswith(INTERNAL))))

    def partitions(
        self, topics: Iterable[str], *, leaders_only: bool = False, committed: bool = False
    ) -> Found:
        """Return the partitions of these topics. `leaders_only`: True to leave out the replicas of
        followers; `committed`: True to end each log at its last stable offset, below which every
        transaction has ended. A partition without a leader, a topic that the cluster does not show,
        and offsets that cannot be read are asked for again for `AWAY_S` seconds; then the first two
        are told as missing, and for offsets KafkaException is raised."""
        names = tuple(topics)
        metadata, missing = self._settled(names)
        addresses = {one.id: (one.host, one.port) for one in metadata.brokers.values()}
        found = [
            (topic, one)
            for topic in names
            if topic in metadata.topics
            for one in _led(metadata.topics[topic])
        ]
        logs = self._logs([(topic, one.id) for topic, one in found], committed)
        audited = [
            _audited(topic, one, logs[topic, one.id], addresses, leaders_only=leaders_only)
            for topic, one in found
        ]
        return Found(audited, missing)

    def _settled(self, topics: Sequence[str]) -> tuple[ClusterMetadata, tuple[str, ...]]:
        """Return metadata in which all partitions have leaders, or the last after `AWAY_S` seconds,
        and what is missing in it."""
        until_s = time.monotonic() + AWAY_S
        while True:
            metadata = self._admin.list_topics(timeout=TIMEOUT_S)
            missing = tuple(
                one for topic in topics for one in _missing(topic, metadata.topics.get(topic))
            )
            if not missing or time.monotonic() >= until_s:
                return metadata, missing
            self._admin.poll(RETRY_S)

    def ids(self, topics: Sequence[str], *, patient: bool = True) -> dict[str, str | None]:
        """Return the topics' ids, None for a topic that does not exist. A topic is left out if it
        may not be described, or if the brokers do not answer. `patient`: True to ask for `AWAY_S`
        seconds, False to ask once."""
        found: dict[str, str | None] = {}
        until_s = time.monotonic() + (AWAY_S if patient else 0.0)
        left = list(topics)
        while left:
            answers = self._admin.describe_topics(TopicCollection(left), request_timeout=TIMEOUT_S)
            for name, answer in answers.items():
                try:
                    found[name] = str(answer.result().topic_id)
                except KafkaException as error:
                    code = error.args[0].code()
                    if code == KafkaError.UNKNOWN_TOPIC_OR_PART:
                        found[name] = None
                    elif code != KafkaError.TOPIC_AUTHORIZATION_FAILED:
                        continue
                left.remove(name)
            if time.monotonic() >= until_s:
                break
            if left:
                self._admin.poll(RETRY_S)
        return found

    def compacted(self, topics: Sequence[str]) -> dict[str, bool | None]:
        """Return, by topic, True if it is compacted, False if not, None if its configuration cannot
        be read."""
        resources = [ConfigResource(ConfigResource.Type.TOPIC, name) for name in topics]
        if not resources:
            return {}
        answers = self._admin.describe_configs(resources, request_timeout=TIMEOUT_S)
        found: dict[str, bool | None] = {}
        for resource, answer in answers.items():
            try:
                found[resource.name] = "compact" in (answer.result()[POLICY].value or "")
            except KafkaException:
                found[resource.name] = None
        return found

    def offsets_at(
        self, partitions: Sequence[AuditedPartition], timestamp_ms: int
    ) -> dict[str, dict[str, int]]:
        """Return, by topic and partition (as text), the offset of the first record with a timestamp
        of at least `timestamp_ms` (since 1970); -1 if there is none. Raises KafkaException."""
        places = [(one.topic, one.partition) for one in partitions]
        found: dict[str, dict[str, int]] = {}
        offsets = self._offsets(places, OffsetSpec.for_timestamp(timestamp_ms))
        for (topic, partition), offset in offsets.items():
            found.setdefault(topic, {})[str(partition)] = offset
        return found

    def _logs(
        self, places: Sequence[tuple[str, int]], committed: bool
    ) -> dict[tuple[str, int], OffsetRange]:
        starts = self._offsets(places, OffsetSpec.earliest())
        ends = self._offsets(places, OffsetSpec.latest(), _ISOLATION[committed])
        return {
            place: OffsetRange(
                log_start_offset=min(starts[place], ends[place]), log_end_offset=ends[place]
            )
            for place in places
        }

    def _offsets(
        self,
        places: Sequence[tuple[str, int]],
        spec: OffsetSpec,
        isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    ) -> dict[tuple[str, int], int]:
        if not places:
            return {}
        until_s = time.monotonic() + AWAY_S
        while True:
            asked = {TopicPartition(*place): spec for place in places}
            answers = self._admin.list_offsets(
                asked, isolation_level=isolation, request_timeout=TIMEOUT_S
            )
            try:
                return {
                    (place.topic, place.partition): answer.result().offset
                    for place, answer in answers.items()
                }
            except KafkaException:
                # An election, as a rule. librdkafka learns of new leaders by asking for all topics.
                if time.monotonic() >= until_s:
                    raise
                self._admin.poll(RETRY_S)
                self._admin.list_topics(timeout=TIMEOUT_S)


def _led(topic: TopicMetadata) -> list[PartitionMetadata]:
    return [one for _, one in sorted(topic.partitions.items()) if one.leader >= 0]


def _missing(topic: str, shown: TopicMetadata | None) -> Iterable[str]:
    if shown is None:
        yield f"{topic}: the cluster does not show it"
    elif shown.error is not None or not shown.partitions:
        cause = "no partitions" if shown.error is None else shown.error.str()
        yield f"{topic}: the cluster's metadata say: {cause}"
    else:
        for _, one in sorted(shown.partitions.items()):
            if one.leader < 0:
                yield f"{topic}-{one.id}: it has no leader"


def _audited(
    topic: str,
    one: PartitionMetadata,
    log: OffsetRange,
    addresses: Mapping[int, tuple[str, int]],
    *,
    leaders_only: bool,
) -> AuditedPartition:
    others = [] if leaders_only else sorted(set(one.replicas) - {one.leader})
    brokers = [one.leader, *others]
    return AuditedPartition(
        topic=topic,
        partition=one.id,
        log=log,
        replicas=tuple(Place(topic, one.id, b, *addresses[b]) for b in brokers if b in addresses),
        in_sync=frozenset(one.isrs),
        away=tuple(b for b in brokers if b not in addresses),
    )
