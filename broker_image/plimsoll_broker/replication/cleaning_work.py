"""The two places where log compaction runs: a thread, or a process.

`CleaningInThread`: compaction in a thread of the broker, for the simulator and tests. Its rate is
not limited, since there is no other work to hold up.

`CleaningProcess`: compaction in a child process, as the shipped broker does it. A thread would take
the interpreter from the event loop while it looks at keys. The process is started when a log is due
and ends when none is. If the process dies, the round ends, and the next round starts another
process. Source: docs/protocol.md §10.3.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import msgspec

from plimsoll_broker.background import in_thread
from plimsoll_broker.storage.cleaner import process as messages
from plimsoll_broker.storage.cleaner.round import CleanedSegment, CleaningFailed, CleaningJob, Round
from plimsoll_broker.storage.disk import Disk, StorageError, StorageFault
from plimsoll_wire.batches import BatchError

logger = logging.getLogger("plimsoll.cleaner")
T = TypeVar("T")


class CleaningInThread:
    """Runs rounds of log compaction in a thread of this process, one round at a time. Used by the
    simulator and tests. Implements `CleaningWork`."""

    in_brokers_share = True

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._round: Round | None = None

    async def begin(self, job: CleaningJob) -> int:
        made = Round(self._disk, job, _any_rate)
        self._round = made
        return await _done(made.measure)

    async def clean(self, bases: Sequence[int]) -> CleanedSegment:
        assert self._round is not None, "it was begun"
        return await _done(partial(self._round.clean, bases))

    async def end(self) -> None:
        self._round = None

    async def close(self) -> None:
        """Do nothing: there is no process to stop."""


def _any_rate(size: int) -> None:
    """Accept any number of bytes without a pause. Used as the `used` callback of `Round`, which
    otherwise limits the rate."""


async def _done(work: Callable[[], T]) -> T:
    """Run `work` in a thread and return its result. Raise CleaningFailed for a storage error or a
    damaged batch."""
    try:
        return await in_thread(work)
    except StorageError as error:
        raise CleaningFailed(str(error), damaged=error.fault is StorageFault.CORRUPT) from error
    except BatchError as error:
        raise CleaningFailed(str(error), damaged=True) from error


_PROGRAM = (
    "from plimsoll_process.process_tuning import {work}; why = {work}(); "
    "import sys; from plimsoll_broker.storage.cleaner.process import main; sys.exit(main(why))"
)
"""The Python program of the child process. It lowers its priority before any other import: the
imports take some tenths of a second of processor time, which the brokers need while they are
busy."""
_TUNABLES = "GLIBC_TUNABLES"
_APART, _WITHIN = "work_in_background", "work_within"
_decode = msgspec.json.Decoder(messages.Answer).decode


class CleaningProcess:
    """Runs rounds of log compaction in a child process, one round at a time. Used by the shipped
    broker. The child starts with the first request and is killed by `close` or on an error.
    Implements `CleaningWork`."""

    def __init__(self, bytes_per_second: int) -> None:
        self._bytes_per_second = bytes_per_second
        self._process: asyncio.subprocess.Process | None = None
        # True if a session of its own would get as much processor time as the broker's.
        self.in_brokers_share = False

    async def begin(self, job: CleaningJob) -> int:
        answer = await self._ask(messages.BeginRound(job))
        assert isinstance(answer, messages.RoundMeasured), answer
        return answer.end

    async def clean(self, bases: Sequence[int]) -> CleanedSegment:
        answer = await self._ask(messages.CleanSegments(tuple(bases)))
        assert isinstance(answer, messages.SegmentCleaned), answer
        return answer.segment

    async def end(self) -> None:
        if self._process is not None:
            await self._ask(messages.EndRound())

    async def close(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()

    async def _ask(self, question: messages.Question) -> messages.Answer:
        """Send a request to the child process and return its answer; start the process if there is
        none. If it ended or answered nonsense, kill it and raise CleaningFailed; raise that also if
        it reports a failed round."""
        try:
            process = await self._running()
            assert process.stdin is not None, "it is a pipe"
            assert process.stdout is not None, "it is a pipe"
            process.stdin.write(msgspec.json.encode(question) + b"\n")
            await process.stdin.drain()
            line = await process.stdout.readline()
            if not line:
                raise CleaningFailed(
                    "the process that cleans compacted logs ended before it answered"
                )
            answer: messages.Answer = _decode(line)
            if isinstance(answer, messages.NotInBackground):
                await self._stay_within(answer.sentence)
                return await self._ask(question)
        except (CleaningFailed, OSError, ValueError) as error:  # ValueError: also msgspec's
            await self.close()
            raise CleaningFailed(str(error)) from error
        except BaseException:
            # The answer will not be read: it must not be taken for the next one's.
            await self.close()
            raise
        if isinstance(answer, messages.RoundFailed):
            raise CleaningFailed(answer.sentence, damaged=answer.damaged)
        return answer

    async def _stay_within(self, why: str) -> None:
        """Set `in_brokers_share`, so that the next child runs in the broker's own process session,
        and stop the present one. `why`: the child's reason for not running in the background. Linux
        divides processor time among sessions first, so a nice value may have no effect in a session
        of its own. Raise CleaningFailed if the child is in the broker's session already."""
        if self.in_brokers_share:
            raise CleaningFailed(why)
        logger.warning(
            "this broker could not lower the CPU priority of the process that cleans compacted "
            "logs; cleaning works, but may slow down clients' requests; if it does, give the "
            "broker more CPU: %s",
            why,
        )
        self.in_brokers_share = True
        await self.close()

    async def _running(self) -> asyncio.subprocess.Process:
        if self._process is None:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-c",
                _PROGRAM.format(work=_WITHIN if self.in_brokers_share else _APART),
                f"--die-with-parent={os.getpid()}",
                f"--bytes-per-second={self._bytes_per_second}",
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                # So that its priority counts against all processes, see
                # `plimsoll_process.process_tuning`.
                start_new_session=not self.in_brokers_share,
                env=_environment(),
            )
        return self._process


def _environment() -> dict[str, str]:
    """Return the broker's environment variables for the child, with one added that has glibc (2.35
    or later) use huge pages: random look-ups of a million keys then take a tenth less time."""
    known = os.environ.get(_TUNABLES)
    return os.environ | {_TUNABLES: ":".join([*filter(None, [known]), "glibc.malloc.hugetlb=1"])}
