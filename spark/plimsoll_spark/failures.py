"""Names the cause of a run that broke: no memory, no room on the disk, or another error.

Called by `verification`, and by `executor_drive` for a failed task. The error may come from this
process, or from the JVM with the text of an error of Python's workers or of Java in it. Spark says
in it which executor a failed task had; without one, it was a task of the driver's pod.
"""

from __future__ import annotations

import errno
import re
from collections.abc import Iterator
from dataclasses import dataclass

from plimsoll_spark.verdict import Reason

LENGTH_MAX = 1000
NO_MEMORY = ("java.lang.OutOfMemoryError", "MemoryError")
NO_ROOM = ("No space left on device", "Disk quota exceeded")
EXECUTOR = re.compile(r"\bexecutor (?:with id )?\d+\b")
"""How Spark names an executor that is no part of the driver."""
EXECUTOR_KILLED = ("OOMKilled", "exit code 137", "code 137 ", "possible container OOM")
"""Spark's and Kubernetes' words for a container that SIGKILL ended, most often for want of
memory."""
WORKER_KILLED = ("Python worker exited unexpectedly",)
JVM_ENDED = ("Py4JNetworkError", "ConnectionRefusedError", "ConnectionResetError")


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The cause of a run's error: its category, and a sentence for the user."""

    reason: Reason
    message: str


def failure_of(error: BaseException, *, killed: int) -> Failure:
    """Return the cause of a run's error. `killed`: how many processes of the container the kernel
    has killed for want of memory during the run."""
    chain = tuple(_chain(error))
    text = " ".join(f"{type(one).__name__}: {one}" for one in chain)
    if (lost := executor_failure(text)) is not None:
        return lost
    if any(isinstance(one, OSError) and one.errno in (errno.ENOSPC, errno.EDQUOT) for one in chain):
        return _no_room()
    if any(words in text for words in NO_ROOM):
        return _no_room()
    if killed or any(words in text for words in NO_MEMORY):
        sentence = (
            "the Verification's driver pod ran out of memory; raise "
            "runner.resources.limits.memory, of which a quarter is the JVM's heap"
        )
        return Failure(reason=Reason.OUT_OF_MEMORY, message=sentence)
    if any(type(one).__name__ in JVM_ENDED for one in chain):
        sentence = (
            "Spark's Java process in the Verification's driver pod ended during the run "
            f"({type(error).__name__}); see the pod's log"
        )
        return Failure(reason=Reason.RUN_BROKE, message=sentence)
    return Failure(reason=Reason.RUN_BROKE, message=f"{type(error).__name__}: {error}"[:LENGTH_MAX])


def executor_failure(text: str) -> Failure | None:
    """Return the cause if, by the text of an error, an executor lacked memory or room on its disk;
    None if the text says of no executor that it did."""
    if EXECUTOR.search(text) is None:
        return None
    if any(words in text for words in NO_ROOM):
        sentence = (
            "the disk of an executor pod of the Verification is full; set more runner.executors, "
            "so that each has less to do"
        )
        return Failure(reason=Reason.DISK_FULL, message=sentence)
    if any(words in text for words in (*EXECUTOR_KILLED, *WORKER_KILLED, *NO_MEMORY)):
        sentence = (
            "an executor pod of the Verification was killed again and again, most often because "
            "its memory limit did not suffice; raise runner.executorResources.limits.memory, or "
            "lower its cpu, so that it has fewer tasks"
        )
        return Failure(reason=Reason.OUT_OF_MEMORY, message=sentence)
    return None


def _no_room() -> Failure:
    sentence = (
        "the disk of the Verification's driver pod is full; write fewer records, or keep the "
        "evidence files on a larger volume (spec.evidence)"
    )
    return Failure(reason=Reason.DISK_FULL, message=sentence)


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and all errors that it was raised from."""
    seen: set[int] = set()
    now: BaseException | None = error
    while now is not None and id(now) not in seen:
        seen.add(id(now))
        yield now
        now = now.__cause__ or now.__context__
