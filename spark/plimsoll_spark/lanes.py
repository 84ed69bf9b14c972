"""Runs items of work on executors: each is a Spark job of one task, and some run at the same time.

Called by `executor_drive` and `executor_checks`. A job of its own returns its result to the driver
as soon as it has ended, so that nothing has to be shared with the executors but the network. If an
executor is lost, Spark runs its tasks again.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")


def run_in_lanes(items: Iterable[T], work: Callable[[T], None], lanes: int) -> None:
    """Call `work` with each item, in `lanes` threads, and return when all calls have returned.
    Items are taken one by one, when a thread is free. After an error no item is begun, and the
    first error is raised once the running calls have ended."""
    left, lock, failed = iter(items), threading.Lock(), threading.Event()

    def lane() -> None:
        while not failed.is_set():
            with lock:
                item = next(left, None)
            if item is None:
                return
            try:
                work(item)
            except BaseException:
                failed.set()
                raise

    with ThreadPoolExecutor(max_workers=lanes, thread_name_prefix="lane") as pool:
        running = [pool.submit(lane) for _ in range(lanes)]
    for one in running:
        one.result()


def on_an_executor(spark: SparkSession, work: Callable[[T], R], item: T) -> R:
    """Run `work` on the item in a task, and return its result. Raises Py4JJavaError if the task
    failed as often as Spark allows."""
    results: list[R] = spark.sparkContext.parallelize([item], 1).map(work).collect()
    return results[0]
