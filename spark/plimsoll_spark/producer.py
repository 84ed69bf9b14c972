"""One producer of a drive: sends its share of the records at its rate, and keeps the ledger.

Runs inside a Spark task (`drive`). Open loop: the schedule does not wait for the log, so a stall
shows as waiting records, not as fewer of them. Decides each record's outcome: acked, failed
(certainly not appended) or unknown. Never sends a record again itself; only librdkafka retries.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from plimsoll_spark.ledger import ACKED, CHUNK_ROWS, FAILED, SCHEMA, UNKNOWN
from plimsoll_spark.pacing import Pace
from plimsoll_spark.records import Encoder, key_of, sequence_of
from plimsoll_spark.whole_files import put_whole

CHUNK_S = 5.0
TICK_S = 0.005
FULL_QUEUE_WAIT_S = 0.05
PROGRESS_EVERY_S = 0.5
FLUSH_MARGIN_S = 10.0
HELD_S = 0.25
"""If this time passes between two rounds of a producer's loop, which waits 0.05 s at most, the
producer did not run."""
HELD_MAX = 200
"""The most times in which a producer did not run that are noted: the first ones, or those before
now in a drive without an end."""

# Refusals that every attempt of a producer meets, the first too: the record is not in the log.
# Others may follow an appended attempt, the answer to which was lost: meanwhile a right was
# withdrawn (TOPIC_AUTHORIZATION_FAILED), a config changed (MSG_SIZE_TOO_LARGE, INVALID_RECORD), the
# topic was deleted (UNKNOWN_TOPIC).  librdkafka knows which (`rd_kafka_message_status`), and its
# Python client does not say it; so those stay unknown.
NEVER_APPENDED = frozenset({KafkaError.INVALID_REQUIRED_ACKS})


class Row(NamedTuple):
    """The outcome of one record, a row of the ledger. Partition and offset are None if unknown.
    Times are milliseconds since 1970."""

    partition: int | None
    offset: int | None
    producer: int
    sequence: int
    outcome: str
    send_ms: float
    settled_ms: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The task of one producer of a drive. `producer`: its number; `pace`: None: as fast as
    possible; `client`: settings of librdkafka; `progress`: the file for its progress; `ledger`: the
    ledger's directory."""

    run: str
    topic: str
    producer: int
    records: int
    record_bytes: int
    pace: Pace | None
    keys: int
    client: dict[str, Any]
    message_timeout_s: float
    stop_at_s: float  # seconds since 1970; no record is sent after it
    progress: Path
    ledger: Path
    first: int = 0
    """The sequence of the first record."""
    behind_max: int | None = None
    """The most records that may be due and not sent; further ones are left out. None: no bound."""
    chunk_s: float = CHUNK_S
    """Seconds after which outcomes are written."""
    burst_s: float = 0.0
    """Records that become due within so many seconds are sent together."""
    settled_by_s: float = math.inf
    """The time, in seconds since 1970, at which a record without an outcome becomes unknown."""


class Sender:
    """Sends the records of one plan. `run` yields the rows of the ledger as the outcomes become
    known."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._encoder = Encoder(
            run=plan.run, producer=plan.producer, record_bytes=plan.record_bytes
        )
        self._pending: dict[int, float] = {}  # sequence -> send time, ms; bounded by the queue
        self._rows: list[Row] = []
        self._taken_s = time.monotonic()  # when rows were last taken
        self._counts = {"sent": 0, ACKED: 0, FAILED: 0, UNKNOWN: 0}
        self._stopped: str | None = None
        self._next_progress_s = 0.0
        self._ticked_s = time.monotonic()
        self._held: list[tuple[float, float]] = []
        self._left_out = 0
        self._client = Producer(
            {**plan.client, "on_delivery": self._settle, "error_cb": self._note_fatal}
        )

    def run(self) -> Iterator[pa.RecordBatch]:
        """Send all records, and yield their outcomes in chunks. End when each sent record has one,
        which is unknown after a time limit. Stop sending early at the plan's `stop_at_s` or after a
        fatal error of the client."""
        plan, started_s, sent = self._plan, time.monotonic(), 0
        while sent < plan.records and self._stopped is None:
            elapsed_s = time.monotonic() - started_s
            if plan.burst_s:
                elapsed_s -= elapsed_s % plan.burst_s
            due = self._due(elapsed_s) - self._left_out
            if plan.behind_max is not None and due - sent > plan.behind_max:
                self._left_out += due - sent - plan.behind_max
                due = sent + plan.behind_max
            while sent < due and self._stopped is None and self._send(plan.first + sent):
                sent += 1
            self._tick(0.0 if sent < due else TICK_S)
            if self._chunk_is_due():
                yield self._take_rows()
            if sent < plan.records and time.time() >= plan.stop_at_s:
                self._stopped = "the deadline came before every record was sent"
        yield from self._drain()

    def _due(self, elapsed_s: float) -> int:
        """Return how many records should have been sent after `elapsed_s`. Without a rate, it is
        1,000 more than were sent, so that the queue is kept full."""
        plan = self._plan
        if plan.pace is None:
            return min(plan.records, self._counts["sent"] + 1_000)
        return min(plan.records, plan.pace.due(elapsed_s))

    def _send(self, sequence: int) -> bool:
        """Pass the record `sequence` to the client. Return False if that failed: the client's queue
        is full, and the record must be sent later, or the client has failed for good."""
        plan = self._plan
        now_ms = time.time() * 1000
        try:
            self._client.produce(
                plan.topic,
                value=self._encoder.value(sequence),
                key=key_of(plan.producer, sequence, plan.keys),
            )
        except BufferError:
            self._tick(FULL_QUEUE_WAIT_S)
            return False
        except KafkaException as error:  # a fatal error of an idempotent producer
            self._stopped = f"the producer gave up: {error}"
            return False
        self._pending[sequence] = now_ms
        self._counts["sent"] += 1
        return True

    def _tick(self, wait_s: float) -> None:
        self._client.poll(wait_s)
        self._note_held(time.monotonic())
        if time.monotonic() >= self._next_progress_s:
            self._next_progress_s = time.monotonic() + PROGRESS_EVERY_S
            self._write_progress()

    def _note_held(self, now_s: float) -> None:
        """Note the time since the last tick if the producer did not run in it."""
        gap_s, self._ticked_s = now_s - self._ticked_s, now_s
        if gap_s < HELD_S:
            return
        endless = self._plan.behind_max is not None  # of such a drive the newest times count
        if len(self._held) >= HELD_MAX and not endless:
            return
        end_ms = time.time() * 1000
        self._held = [*self._held, (end_ms - gap_s * 1000, end_ms)][-HELD_MAX:]

    def _drain(self) -> Iterator[pa.RecordBatch]:
        """Wait for the outcomes of all sent records, and yield them. A record without one after the
        message timeout and a margin, or at `Plan.settled_by_s`, is unknown."""
        most_s = self._plan.message_timeout_s + FLUSH_MARGIN_S
        until_s = time.monotonic() + min(most_s, self._plan.settled_by_s - time.time())
        while self._pending and time.monotonic() < until_s:
            self._tick(FULL_QUEUE_WAIT_S)
            if self._chunk_is_due():
                yield self._take_rows()
        now_ms = time.time() * 1000
        for sequence, send_ms in sorted(self._pending.items()):
            producer = self._plan.producer
            self._enter(Row(None, None, producer, sequence, UNKNOWN, send_ms, now_ms))
        self._pending.clear()
        self._write_progress()
        if self._rows:
            yield self._take_rows()

    def _chunk_is_due(self) -> bool:
        """Return True if the collected rows should be written now: they are `CHUNK_ROWS`, or
        `Plan.chunk_s` has passed. Rows in memory are lost if the process dies."""
        waited_s = time.monotonic() - self._taken_s
        return len(self._rows) >= CHUNK_ROWS or (
            bool(self._rows) and waited_s >= self._plan.chunk_s
        )

    def _settle(self, error: KafkaError | None, message: Message) -> None:
        sequence = sequence_of(message.value())
        send_ms = self._pending.pop(sequence)
        partition = message.partition()
        offset = message.offset()
        latency_s = message.latency()
        settled_ms = send_ms + latency_s * 1000 if latency_s else time.time() * 1000
        if error is not None:
            outcome, offset = (FAILED if error.code() in NEVER_APPENDED else UNKNOWN), None
        elif self._plan.client["acks"] == "0":
            # No broker answered.  librdkafka numbers such records from 0, which is not an offset.
            outcome, offset = UNKNOWN, None
        elif offset is None or offset < 0:
            # The log recognised a duplicate without returning its offset.
            outcome, offset = ACKED, None
        else:
            outcome = ACKED
        partition = partition if partition is not None and partition >= 0 else None
        producer = self._plan.producer
        self._enter(Row(partition, offset, producer, sequence, outcome, send_ms, settled_ms))

    def _enter(self, row: Row) -> None:
        self._rows.append(row)
        self._counts[row.outcome] += 1

    def _note_fatal(self, error: KafkaError) -> None:
        if error.fatal():
            self._stopped = f"the producer gave up: {error.str()}"

    def _take_rows(self) -> pa.RecordBatch:
        columns = list(zip(*self._rows, strict=True)) or [()] * len(SCHEMA)
        self._rows, self._taken_s = [], time.monotonic()
        arrays = [
            pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)
        ]
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)

    def _write_progress(self) -> None:
        state = {**self._counts, "stopped": self._stopped, "held": self._held}
        put_whole(self._plan.progress, json.dumps(state).encode())
