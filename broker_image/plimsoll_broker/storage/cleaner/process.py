"""The process in which a broker's logs are cleaned; `main` is its program.

Started by `replication.cleaning_work` with low priority. It reads a request as a line of JSON and
writes an answer, one at a time. It reads sealed segments, writes `.cleaned` files, and ends with
its broker, so that nothing writes to the volume before another broker opens it.
log.cleaner.io.max.bytes.per.second limits its reads and writes.
"""

from __future__ import annotations

import argparse
import sys
import time

import msgspec

from plimsoll_broker.storage.cleaner.round import CleanedSegment, CleaningJob, Round
from plimsoll_broker.storage.disk import Disk, StorageError, StorageFault
from plimsoll_process.parent import die_with_parent
from plimsoll_wire.batches import BatchError

_SLEPT_S_MIN = 0.01


class BeginRound(msgspec.Struct, frozen=True, tag=True):
    """A request to begin a round and find its keys. Answered by `RoundMeasured`."""

    job: CleaningJob


class CleanSegments(msgspec.Struct, frozen=True, tag=True):
    """A request to write the cleaned segment of the group with these base offsets. Answered by
    `SegmentCleaned`."""

    bases: tuple[int, ...]


class EndRound(msgspec.Struct, frozen=True, tag=True):
    """A request to end the round and free its memory. Answered by `RoundEnded`."""


class RoundMeasured(msgspec.Struct, frozen=True, tag=True):
    """The answer to `BeginRound`. `end`: the offset up to which the round cleans."""

    end: int


class SegmentCleaned(msgspec.Struct, frozen=True, tag=True):
    """The answer to `CleanSegments`."""

    segment: CleanedSegment


class RoundEnded(msgspec.Struct, frozen=True, tag=True):
    """The answer to `EndRound`: the round's memory is free."""


class RoundFailed(msgspec.Struct, frozen=True, tag=True):
    """The answer to a request that failed. `sentence`: the reason. `damaged`: True if a segment is
    corrupt."""

    sentence: str
    damaged: bool


class NotInBackground(msgspec.Struct, frozen=True, tag=True):
    """Sent before any request if the process cannot get a lower priority than the broker; the
    process then ends. `sentence`: the reason."""

    sentence: str


Question = BeginRound | CleanSegments | EndRound
Answer = RoundMeasured | SegmentCleaned | RoundEnded | RoundFailed | NotInBackground


class Pace:
    """Limits a process to a number of bytes read and written per second, by sleeping."""

    def __init__(self, bytes_per_second: int) -> None:
        self._rate = bytes_per_second
        self._free_s = time.monotonic()

    def used(self, size: int) -> None:
        """Count `size` bytes, and sleep if the rate is exceeded."""
        now_s = time.monotonic()
        self._free_s = max(self._free_s, now_s) + size / self._rate
        if (wait_s := self._free_s - now_s) >= _SLEPT_S_MIN:
            time.sleep(wait_s)


class RoundServer:
    """Answers the broker's requests in the cleaning process, one after another. It holds at most
    one round."""

    def __init__(self, disk: Disk, pace: Pace) -> None:
        self._disk = disk
        self._pace = pace
        self._round: Round | None = None

    def answer(self, question: Question) -> Answer:
        try:
            match question:
                case BeginRound(job):
                    self._round = None  # free its memory before the next one takes as much
                    self._round = Round(self._disk, job, self._pace.used)
                    return RoundMeasured(self._round.measure())
                case CleanSegments(bases):
                    assert self._round is not None, "it was begun"
                    return SegmentCleaned(self._round.clean(bases))
                case EndRound():
                    self._round = None
                    return RoundEnded()
        except StorageError as error:
            return RoundFailed(str(error), error.fault is StorageFault.CORRUPT)
        except BatchError as error:
            return RoundFailed(str(error), damaged=True)


def main(not_in_background: str | None) -> int:
    """Answer requests on standard input until it ends; return the exit status. `not_in_background`:
    why the process has no lower priority than the broker, or None if it has."""
    parser = argparse.ArgumentParser(prog="plimsoll_broker.storage.cleaner.process")
    parser.add_argument("--die-with-parent", type=int, metavar="PID", required=True)
    parser.add_argument("--bytes-per-second", type=int, required=True)
    arguments = parser.parse_args()
    die_with_parent(arguments.die_with_parent)
    if not_in_background is not None:
        _say(NotInBackground(not_in_background))
        return 0
    cleaner = RoundServer(Disk(), Pace(arguments.bytes_per_second))
    decode = msgspec.json.Decoder(Question).decode
    for line in sys.stdin.buffer:
        _say(cleaner.answer(decode(line)))
    return 0


def _say(answer: Answer) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(answer) + b"\n")
    sys.stdout.buffer.flush()
