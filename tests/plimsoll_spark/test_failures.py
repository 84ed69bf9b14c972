"""Errors of a run, by their cause."""

import errno

import pytest

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
