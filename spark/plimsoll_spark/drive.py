"""The drive: the Spark job that writes the records of a verification. Each of its tasks runs one
producer and writes that producer's part of the ledger (Parquet).

Called by `run`. Splits records and rate over the producers, and configures librdkafka to survive a
broker's failover without reporting a failure.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from plimsoll_spark import ledger
from plimsoll_spark.budget import Interval
from plimsoll_spark.login import librdkafka
from plimsoll_spark.producer import Plan, Sender
from plimsoll_spark.settings import Produce, Settings

MESSAGE_TIMEOUT_S = 120
"""Of a drive without a time by which outcomes are settled."""
AFTER_SETTLING_S = 60
"""How long after that time a record would time out: a producer that times out a record raises its
epoch, and may then write others twice (`copies`)."""
MESSAGE_TIMEOUT_MAX_S = (2**31 - 1) // 1000  # librdkafka's own bound
MAX_QUEUED_RECORDS = 100_000
MAX_QUEUED_KB = 64 * 1024
ACKS = {"All": "all", "Leader": "1", "None": "0"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Drive:
    """The settings of one drive. `run`: the run's unique id; `producers`: how many run at the same
    time; `stop_at_s`: no record is sent after it, and `settled_by_s`: no outcome is awaited after
    it, in seconds since 1970; `work`: the run's directory."""

    run: str
    settings: Settings
    producers: int
    stop_at_s: float
    work: Path
    settled_by_s: float = math.inf
    first_producer: int = 0
    """The number of the first producer: steps of a search have producers of their own."""

    @property
    def ledger(self) -> Path:
        """Return the directory of the ledger's Parquet files."""
        return self.work / "ledger"

    @property
    def progress(self) -> Path:
        """Return the directory in which each producer writes its progress."""
        return self.work / "progress"


def run_drive(spark: SparkSession, drive: Drive) -> None:
    """Run all producers. Return when each has sent its records, or stopped early, and the outcome
    of every sent record is in the ledger. Raises Py4JJavaError if a task fails."""
    drive.progress.mkdir(parents=True, exist_ok=True)
    drive.ledger.mkdir(exist_ok=True)
    plans = plan(drive)
    # One task per producer, all at once: the session has a core for each.
    spark.sparkContext.parallelize(plans, len(plans)).foreach(write_ledger)


def write_ledger(plan: Plan) -> None:
    """Run one producer, in a Spark task: send its records and write their outcomes to the ledger as
    they become known."""
    for number, rows in enumerate(Sender(plan).run()):
        name = f"producer-{plan.producer}-{number:06d}.parquet"
        ledger.write_chunk(plan.ledger / name, rows)


def plan(drive: Drive) -> tuple[Plan, ...]:
    """Return the plan of each producer. Together they send exactly the requested number of records,
    at the requested rate."""
    settings, produce = drive.settings, drive.settings.produce
    share, rest = divmod(produce.total, drive.producers)
    pace, timeout_s = produce.pace, message_timeout_s(drive.settled_by_s)
    return tuple(
        Plan(
            run=drive.run,
            topic=settings.topic,
            producer=drive.first_producer + number,
            records=share + (1 if number < rest else 0),
            record_bytes=produce.record_bytes,
            pace=None if pace is None else pace.shared(drive.producers),
            keys=produce.keys,
            client=client_config(settings.bootstrap, produce, drive.producers)
            | {"message.timeout.ms": timeout_s * 1000}
            | librdkafka(settings.login),
            message_timeout_s=timeout_s,
            stop_at_s=drive.stop_at_s,
            settled_by_s=drive.settled_by_s,
            progress=drive.progress / f"{drive.first_producer + number}.json",
            ledger=drive.ledger,
        )
        for number in range(drive.producers)
    )


def message_timeout_s(settled_by_s: float) -> int:
    """Return the seconds after which librdkafka gives up a record: later than the producer does, at
    `settled_by_s`, in seconds since 1970; if that is infinite, `MESSAGE_TIMEOUT_S`."""
    if math.isinf(settled_by_s):
        return MESSAGE_TIMEOUT_S
    wanted = math.ceil(settled_by_s - time.time()) + AFTER_SETTLING_S
    return max(AFTER_SETTLING_S, min(wanted, MESSAGE_TIMEOUT_MAX_S))


def client_config(bootstrap: str, produce: Produce, producers: int) -> dict[str, Any]:
    """Return librdkafka's settings for one of `producers` producers."""
    config: dict[str, Any] = {
        "bootstrap.servers": bootstrap,
        "client.id": "plimsoll-drive",
        "acks": ACKS[produce.acks],
        "enable.idempotence": produce.is_idempotent,
        "compression.type": produce.compression.lower(),
        "partitioner": "murmur2_random",  # what Java producers use
        "linger.ms": 5,
        "message.timeout.ms": MESSAGE_TIMEOUT_S * 1000,
        "queue.buffering.max.messages": MAX_QUEUED_RECORDS // producers,
        "queue.buffering.max.kbytes": MAX_QUEUED_KB // producers,
        "message.max.bytes": max(1_000_000, produce.record_bytes + 1024),
        # A broker without an address never answers: do not wait half a minute for it.
        "socket.connection.setup.timeout.ms": 3000,
        "request.timeout.ms": 10_000,
        "reconnect.backoff.max.ms": 1000,
        "retry.backoff.max.ms": 500,
        "log_level": 3,
    }
    if not produce.is_idempotent:
        # Without sequence numbers, a retry may be appended behind later records.
        config["max.in.flight.requests.per.connection"] = 1
    return config


def progress(directory: Path) -> tuple[dict[str, int], str | None]:
    """Return the number of sent, acked, failed and unknown records of all producers until now, by
    their progress files in a directory, and why a producer stopped early, or None."""
    totals = {"sent": 0, "acked": 0, "failed": 0, "unknown": 0}
    stopped: str | None = None
    for path in sorted(directory.glob("*.json")):
        state = json.loads(path.read_text())
        stopped = stopped or state.pop("stopped")
        for name in totals:
            totals[name] += state[name]
    return totals, stopped


def held(directory: Path) -> list[Interval]:
    """Return the times in which a producer did not run although it had work, by the progress files
    in a directory, in milliseconds since 1970."""
    states = [json.loads(path.read_text()) for path in sorted(directory.glob("*.json"))]
    return [(begin, end) for state in states for begin, end in state.get("held", ())]
