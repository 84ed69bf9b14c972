"""Reads the metadata of a topic as a client: its id, its partitions, and the bounds of their logs.

Called by `run` with a plain librdkafka client. It waits, for a limited time, for a topic to be
created, and for acknowledged records to become readable after a failover.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from confluent_kafka import Consumer, KafkaException, TopicCollection, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec, TopicDescription

from plimsoll_spark.settings import Refusal, Refused

REQUEST_TIMEOUT_S = 10.0
RETRY_S = 0.25
SETTLE_S = 60.0
NOBODY: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """The offsets of one partition that a consumer can read: from the log start offset up to, and
    without, `log_end_offset`, which is the high watermark."""

    log_start_offset: int
    log_end_offset: int


Ranges = dict[int, OffsetRange]


class TopicClient:
    """Reads the metadata and the offsets of one topic."""

    def __init__(self, bootstrap: str, topic: str, login: Mapping[str, str] = NOBODY) -> None:
        """Create a client. `login`: settings of librdkafka by which to log in; empty: no login."""
        self._topic = topic
        client = {
            "bootstrap.servers": bootstrap, "client.id": "plimsoll-verify", "log_level": 2, **login,
        }  # fmt: skip
        self._admin = AdminClient(client)
        # Only queries offsets; never joins the group that librdkafka requires.
        group = {
            "group.id": "plimsoll-verify",
            "enable.auto.commit": False,
            "isolation.level": "read_uncommitted",
        }
        self._consumer = Consumer({**client, **group})

    def close(self) -> None:
        """Close the connections."""
        self._consumer.close()

    def partitions(self, timeout_s: float) -> tuple[int, ...]:
        """Return the ids of the topic's partitions, sorted. Raises `Refusal` if the topic does not
        exist after `timeout_s`."""
        until_s = time.monotonic() + timeout_s
        while True:
            found, why = self._partitions_now()
            if found:
                return found
            if time.monotonic() >= until_s:
                sentence = (
                    f"the Verification cannot run, because topic {self._topic} did not appear "
                    f"within {timeout_s:.0f} s: {why}"
                )
                raise Refusal(Refused.TOPIC_NOT_FOUND, sentence)
            self._admin.poll(RETRY_S)

    def missing_in_sync(self) -> dict[int, int]:
        """Return how many replicas of each partition are not in its ISR. Raises KafkaException."""
        found = self._described().partitions
        return {one.id: max(0, len(one.replicas) - len(one.isr)) for one in found}

    def topic_id(self, timeout_s: float) -> str | None:
        """Return the topic's id; None if the brokers report none. Failures are retried for
        `timeout_s` with fresh metadata, since librdkafka may wait for a broker that is gone; then
        KafkaException is raised."""
        until_s = time.monotonic() + timeout_s
        while True:
            try:
                identity = self._described().topic_id
            except KafkaException:
                if time.monotonic() >= until_s:
                    raise
                self._look_again(self._admin)
            else:
                return None if identity is None else str(identity)

    def ranges(self, partitions: tuple[int, ...], timeout_s: float) -> Ranges:
        """Return the readable offsets of each partition. A partition that answers with an error,
        such as during an election, is retried for `timeout_s`; then KafkaException is raised."""
        until_s = time.monotonic() + timeout_s
        found: Ranges = {}
        while len(found) < len(partitions):
            for partition in partitions:
                if partition not in found:
                    found |= self._range(partition, give_up=time.monotonic() >= until_s)
        return found

    def ranges_now(self, partitions: Collection[int]) -> Ranges:
        """Return the readable offsets of the partitions that answer now; the others are left out,
        and are looked up anew for the next call."""
        places = [TopicPartition(self._topic, one) for one in partitions]
        if not places:
            return {}
        starts, ends = (
            self._admin.list_offsets(dict.fromkeys(places, spec), request_timeout=REQUEST_TIMEOUT_S)
            for spec in (OffsetSpec.earliest(), OffsetSpec.latest())
        )
        found: Ranges = {}
        for place in places:
            try:
                low, high = starts[place].result().offset, ends[place].result().offset
            except KafkaException:
                continue
            found[place.partition] = OffsetRange(
                log_start_offset=min(low, high), log_end_offset=high
            )
        if len(found) < len(places):
            self._look_again(self._admin)
        return found

    def partitions_now(self) -> tuple[int, ...]:
        """Return the ids of the topic's partitions, sorted; none if the brokers do not show the
        topic now."""
        return self._partitions_now()[0]

    def leader_of(self, partition: int) -> tuple[int, str, int] | None:
        """Return id, host and port of the partition's leader; None if it is not known now."""
        try:
            found = {one.id: one.leader for one in self._described().partitions}.get(partition)
        except KafkaException:
            return None
        return None if found is None else (found.id, found.host, found.port)

    def readable_ranges(
        self, wanted: Mapping[int, int], timeout_s: float, settle_s: float = SETTLE_S
    ) -> Ranges:
        """Return the readable offsets of the partitions in `wanted` as soon as each log reaches its
        wanted end offset. After `settle_s`, return them as they are. A partition that answers with
        an error is retried for `timeout_s`.

        A new leader shows its high watermark only after its followers have confirmed it; an earlier
        read would report such records as lost.
        """
        ranges = self.ranges(tuple(sorted(wanted)), timeout_s)
        until_s = time.monotonic() + min(settle_s, timeout_s)
        while True:
            if all(ranges[p].log_end_offset >= end for p, end in wanted.items()):
                return ranges
            if time.monotonic() >= until_s:
                return ranges
            self._admin.poll(RETRY_S)
            ranges = self.ranges(tuple(sorted(wanted)), timeout_s)

    def _look_again(self, client: AdminClient | Consumer) -> None:
        """Make the client refresh its metadata. librdkafka takes a leader that is missing from its
        cached metadata, or a broker that is no longer in it, for a lasting error, and refreshes its
        metadata by itself only every five minutes."""
        self._admin.poll(RETRY_S)
        with contextlib.suppress(KafkaException):
            client.list_topics(
                timeout=REQUEST_TIMEOUT_S
            )  # of all topics: asking for one may create it

    def _partitions_now(self) -> tuple[tuple[int, ...], str]:
        try:
            topic = self._described()
        except KafkaException as error:
            return (), str(error)
        return tuple(sorted(one.id for one in topic.partitions)), "the topic has no partition"

    def _described(self) -> TopicDescription:
        """Return the topic's description. Unlike `list_topics` of one topic, the request never
        auto-creates it. Raises KafkaException."""
        answers = self._admin.describe_topics(
            TopicCollection([self._topic]), request_timeout=REQUEST_TIMEOUT_S
        )
        return answers[self._topic].result(REQUEST_TIMEOUT_S + 1)

    def _range(self, partition: int, *, give_up: bool) -> Ranges:
        try:
            low, high = self._consumer.get_watermark_offsets(
                TopicPartition(self._topic, partition), timeout=REQUEST_TIMEOUT_S, cached=False
            )
        except KafkaException:
            if give_up:
                raise
            self._look_again(self._consumer)
            return {}
        return {partition: OffsetRange(log_start_offset=low, log_end_offset=high)}
