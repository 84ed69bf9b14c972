"""Watches Spark's work from the main thread: publishes progress meanwhile, and cancels the work
when its time is up.

Called by `run` and `audit`.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, TypeVar

import msgspec
from pyspark.sql import SparkSession

from plimsoll_spark.attempts import Superseded
from plimsoll_spark.publish import Publisher, PublishFailed
from plimsoll_spark.values import Progress

PROGRESS_EVERY_S = 2.0
PROGRESS_WITHIN_S = 5.0

log = logging.getLogger(__name__)
T = TypeVar("T")


class TimeUp(Exception):
    """The deadline of the run, or the time for verifying, has passed before the work was done."""


def watch(
    spark: SparkSession,
    job: Callable[[], T],
    tell: Callable[[], Any],
    *,
    until_s: float,
    cancel_within_s: float,
) -> T:
    """Run `job` in a thread, calling `tell` every `PROGRESS_EVERY_S`, and return its result. If
    `job` has not returned at `until_s` (seconds since 1970), cancel Spark's jobs, for at most
    `cancel_within_s`, and raise `TimeUp`. If `tell` raises `Superseded`, cancel them, too."""
    with ThreadPoolExecutor(max_workers=1) as worker:
        future: Future[T] = worker.submit(job)
        while not future.done():
            try:
                tell()
            except Superseded:
                _cancel(spark, future, cancel_within_s)
                raise
            left_s = until_s - time.time()
            if left_s <= 0:
                _cancel(spark, future, cancel_within_s)
                raise TimeUp
            wait([future], timeout=min(PROGRESS_EVERY_S, left_s))
        return future.result()


def _cancel(spark: SparkSession, future: Future[Any], within_s: float) -> None:
    """Cancel Spark's jobs until the future is done, at most for `within_s`. One call is not enough:
    the work may be between two jobs."""
    until_s = time.monotonic() + within_s
    while not future.done() and time.monotonic() < until_s:
        spark.sparkContext.cancelAllJobs()
        wait([future], timeout=1.0)


def publish_progress(publisher: Publisher, state: Progress) -> None:
    """Publish the phase and the counts; a failure is only logged, since the next call tries it
    again. Raises `Superseded`."""
    try:
        publisher.put({"progress.json": as_json(state)}, within_s=PROGRESS_WITHIN_S)
    except PublishFailed as failed:
        log.warning(
            "the driver pod could not write the progress of the Verification to its ConfigMap "
            "and tries again; the Verification goes on: %s",
            failed,
        )


def as_json(value: msgspec.Struct) -> str:
    """Return the value as indented JSON with the field names of the file format."""
    return msgspec.json.format(msgspec.json.encode(value), indent=1).decode()
