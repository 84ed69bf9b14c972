"""The process in which a broker's logs are cleaned; `main` is its program.

Started by `replication.cleaning_work` with low priority. It reads a line of JSON and writes one,
a request at a time. It reads sealed segments, writes `.cleaned` files, and ends with its broker, so
that nothing writes to the volume before another broker opens it.
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
    job: CleaningJob


class CleanSegments(msgspec.Struct, frozen=True, tag=True):
    bases: tuple[int, ...]


class EndRound(msgspec.Struct, frozen=True, tag=True):
    """Ends the round."""


class RoundMeasured(msgspec.Struct, frozen=True, tag=True):
    end: int


class SegmentCleaned(msgspec.Struct, frozen=True, tag=True):
    segment: CleanedSegment


class RoundEnded(msgspec.Struct, frozen=True, tag=True):
    """The round's memory is released."""


class RoundFailed(msgspec.Struct, frozen=True, tag=True):
    sentence: str
    damaged: bool


class NotInBackground(msgspec.Struct, frozen=True, tag=True):
    """Sent before any question, and the process ends: its session has as much processor time as the
    broker's. `sentence` says why."""

    sentence: str


Question = BeginRound | CleanSegments | EndRound
Answer = RoundMeasured | SegmentCleaned | RoundEnded | RoundFailed | NotInBackground


class Pace:
    """Limits the bytes used per second by sleeping."""

    def __init__(self, bytes_per_second: int) -> None:
        self._rate = bytes_per_second
        self._free_s = time.monotonic()

    def used(self, size: int) -> None:
        """Count bytes, and sleep if the rate is exceeded."""
        now_s = time.monotonic()
        self._free_s = max(self._free_s, now_s) + size / self._rate
        if (wait_s := self._free_s - now_s) >= _SLEPT_S_MIN:
            time.sleep(wait_s)


class RoundServer:
    """Answers one question after another."""

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
