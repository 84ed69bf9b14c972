"""Errors of a run, by their cause."""

import errno

import pytest

from plimsoll_spark.executor_drive import why_failed
from plimsoll_spark.failures import failure_of
from plimsoll_spark.verdict import Reason


class Py4JNetworkError(Exception):
    """Has the name of the real one."""


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (OSError(errno.ENOSPC, "No space left on device"), Reason.DISK_FULL),
        (RuntimeError("java.io.IOException: No space left on device"), Reason.DISK_FULL),
        (RuntimeError("java.lang.OutOfMemoryError: Java heap space"), Reason.OUT_OF_MEMORY),
        (MemoryError(), Reason.OUT_OF_MEMORY),
        (Py4JNetworkError("Answer from Java side is empty"), Reason.RUN_BROKE),
        (ValueError("x"), Reason.RUN_BROKE),
    ],
    ids=lambda one: type(one).__name__,
)
def test_error_has_the_reason_of_its_cause(error: Exception, reason: Reason) -> None:
    assert failure_of(error, killed=0).reason is reason


def test_cause_is_found_behind_later_errors() -> None:
    later = ConnectionRefusedError("the JVM has gone")
    later.__context__ = OSError(errno.ENOSPC, "No space left on device")
    assert failure_of(later, killed=0).reason is Reason.DISK_FULL


def test_process_killed_for_memory_is_named() -> None:
    failure = failure_of(Py4JNetworkError("gone"), killed=1)
    assert failure.reason is Reason.OUT_OF_MEMORY
    assert "limits.memory" in failure.message
    assert (
        "Spark's Java process in the Verification's driver pod ended"
        in failure_of(Py4JNetworkError("gone"), killed=0).message
    )


KILLED = (
    "Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure: "
    "Lost task 0.3 in stage 3.0 (TID 9) (10.0.0.7 executor 5): ExecutorLostFailure (executor 5 "
    "exited caused by one of the running tasks) Reason: \nThe executor with id 5 exited with exit "
    "code 137(SIGKILL, possible container OOM).\n\nThe API gave the following container statuses:"
    "\n\n\t container name: executor\n\t termination reason: OOMKilled\n"
)
CRASHED = (
    "Job aborted due to stage failure: Task 0 in stage 3.0 failed 4 times, most recent failure: "
    "Lost task 0.3 in stage 3.0 (TID 9) (10.0.0.7 executor 2): org.apache.spark.SparkException: "
    "Python worker exited unexpectedly (crashed)"
)
HEAP = "Lost task 0.3 in stage 3.0 (TID 9) (h executor 1): java.lang.OutOfMemoryError: Java heap"


@pytest.mark.parametrize("text", [KILLED, CRASHED, HEAP], ids=["pod", "worker", "heap"])
def test_killed_executor_is_told_as_such(text: str) -> None:
    failure = failure_of(RuntimeError(text), killed=0)
    assert failure.reason is Reason.OUT_OF_MEMORY
    assert "raise runner.executorResources.limits.memory" in failure.message
    assert why_failed(text) == failure.message


def test_full_disk_of_executor_is_not_the_drivers() -> None:
    text = "Lost task 0.3 (TID 9) (h executor 1): java.io.IOException: No space left on device"
    failure = failure_of(RuntimeError(text), killed=0)
    assert (failure.reason, "executor pod" in failure.message) == (Reason.DISK_FULL, True)


def test_task_of_the_driver_is_no_executors() -> None:
    text = HEAP.replace("executor 1", "executor driver")
    assert "runner.resources.limits.memory" in failure_of(RuntimeError(text), killed=0).message
    assert why_failed("Job aborted") == "the Spark task of a producer failed: Job aborted"
