"""The evidence of a run: a directory that may outlive its driver, and from which a later driver
judges the same run.

Called by `run` and `verification`. It holds the run file of each driver, the ledger, the producers'
progress, the results and Spark's event log. It lies on a volume (a claim, or a directory of this
machine), or in a temporary directory, from which `bucket` copies it to S3 while the run goes on.
Once there is a run file, the run has begun, and its records are in the topic: a driver that finds
it judges it, and writes nothing. Only the newest driver of a run writes (`attempts`).

A driver takes its number, looks for a run file, writes its own, and looks for a higher number. So
of two drivers that begin at the same time, either the later one finds the run of the earlier one,
or the earlier one ends before it writes a record. The run file of the highest number counts: one
that a paused driver writes late replaces none.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from plimsoll_spark.attempts import UNORDERED, Attempt, Claim, Superseded
from plimsoll_spark.bucket import Bucket, Unreachable, Unsafe
from plimsoll_spark.settings import Evidence as Requested
from plimsoll_spark.settings import Produce, Refusal, Refused, Settings
from plimsoll_spark.topics import OffsetRange, Ranges
from plimsoll_spark.uploads import Uploads
from plimsoll_spark.whole_files import put_whole

RUNS = "runs"
"""The directory of the run files, one of each driver: `000001.json`."""
RUN_FILE_0_3 = "run.json"
"""The run file in the evidence of a run that release 0.3 or an earlier one began."""
RESULTS = "results"
"""The directory of the results, in a directory of each driver: one that was paused before it wrote
its own replaces none of a later one's."""
EVENTS = "spark-events"
FINAL_UPLOAD_S = 120.0

log = logging.getLogger(__name__)


class BegunMeanwhile(Superseded):
    """Another driver began the run after this one had looked for it; this one has written nothing,
    and goes on with that run if it begins again."""


class KeptRun(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The content of a run file: what a later driver must know to judge the run.

    `id`: the run's unique id, of which the salt of its records is made. `started_s`: when it began,
    in seconds since 1970. `before`: by partition, the log start offset and the log end offset
    before the first record. `attempt`: the number of the last driver that has worked on the run;
    `writer`: that of the one that writes records, from 1, higher if one died before it began.
    `failure`, `reason`: why the last one ended without a verdict, None if it could not tell.
    """

    id: str
    topic: str
    topic_id: str | None
    produce: Produce
    started_s: float
    before: dict[int, tuple[int, int]]
    attempt: int = 1
    writer: int = 1
    failure: str | None = None
    reason: str | None = None

    @property
    def writes(self) -> bool:
        """Return True if the driver of this attempt writes the records."""
        return self.attempt == self.writer

    @property
    def ranges(self) -> Ranges:
        """Return `before` as the ranges that the checks use."""
        return {
            partition: OffsetRange(log_start_offset=start, log_end_offset=end)
            for partition, (start, end) in self.before.items()
        }


def bounds(ranges: Ranges) -> dict[int, tuple[int, int]]:
    """Return ranges in the form of `KeptRun.before`."""
    return {p: (one.log_start_offset, one.log_end_offset) for p, one in ranges.items()}


class Evidence:
    """The evidence of one run."""

    def __init__(
        self,
        settings: Settings,
        work: Path,
        bucket: Bucket | None = None,
        parts: Collection[str] | None = None,
    ) -> None:
        """`work`: the run's temporary directory; `bucket`: where to copy the evidence, None to copy
        it nowhere; `parts`: the names in the run's directory that are copied, None for all."""
        self._attempt: Attempt | None = None  # None: the run has not begun
        self._parts = parts
        self._was_downloaded = False
        self._requested = settings.evidence
        self._bucket = bucket
        self._uploads: Uploads | None = None
        where = settings.evidence.directory if settings.evidence is not None else None
        self._verification = settings.name
        self.name = settings.run_name
        self.directory = work / "evidence" if where is None else Path(where) / self.name

    @property
    def is_kept(self) -> bool:
        """Return True if the evidence outlives this process."""
        return self._requested is not None

    @property
    def events(self) -> Path | None:
        """Return the directory of Spark's event log; None if it would vanish with this process."""
        return self.directory / EVENTS if self.is_kept else None

    @property
    def place(self) -> str:
        """Return in words where the evidence lies."""
        requested = self._requested
        if requested is None:
            return "the temporary directory of the driver pod"
        if self._bucket is not None:
            return self._bucket.url(self.name)
        if requested.persistent_volume_claim is not None:
            claim = requested.persistent_volume_claim
            return f"PersistentVolumeClaim {claim}, directory {self.name}"
        return str(self.directory)

    def earlier(self) -> KeptRun | None:
        """Return the content of the newest run file, None if there is none. If it is in no
        directory of this machine but in a bucket, download it first. Raises `Refusal` if the
        settings ask for an earlier run without evidence, or if the place cannot be read."""
        kept = self._read()
        if kept is None and self._requested is not None and self._requested.resume is not None:
            sentence = (
                f"there are no evidence files of run {self.name}, which evidence.resume "
                f"names, in {self.place}"
            )
            raise Refusal(Refused.NOTHING_KEPT, sentence)
        return kept

    def begin(self, kept: KeptRun, claim: Claim = UNORDERED) -> KeptRun:
        """Create the run's directories, take the number of the attempt, write its run file, and
        copy the run's files to the bucket, if there is one, from now on. Return the content of the
        run file, with that number. `claim`: what this driver claimed before it looked for the run.
        Raises `Refusal` if that is impossible: a run that would keep no evidence does not start;
        `BegunMeanwhile` if the newest run file is of another run; and `Superseded` if another
        driver takes the number, or a later one has begun."""
        attempt = Attempt(self.name, self.directory, self._bucket, claim)
        try:
            for part in ("", RUNS, RESULTS, EVENTS):
                (self.directory / part).mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._bucket is not None:
                self._uploads = Uploads(
                    self._bucket, self.directory, self.name, attempt.check, self._parts
                )
                self._uploads.know(is_stored=self._was_downloaded)
            # Producers' numbers follow from the attempt, so none may be given out twice.
            number = attempt.take(kept.attempt)
            newest = self._newest()
            attempt.check()
            if newest is not None and newest.id != kept.id:
                if self._bucket is not None:
                    shutil.rmtree(self.directory)  # so that the run is downloaded
                raise BegunMeanwhile(
                    f"another driver of the Verification's run {self.name} began at the same time; "
                    "this one ends and has written nothing"
                )
            writer = number if kept.writes else kept.writer
            kept = msgspec.structs.replace(kept, attempt=number, writer=writer)
            name = _run_file(number)
            put_whole(self.directory / name, msgspec.json.encode(kept), durable=True)
            self._attempt = attempt
            if self._uploads is None:
                attempt.check()
            else:
                self._uploads.begin(name)
            return kept
        except (OSError, Unreachable, msgspec.DecodeError) as error:
            raise self._unusable(error) from error

    def check(self) -> None:
        """Raises `Superseded` if another driver works on the run now; with a bucket, if the last
        upload met one. Raises OSError."""
        if self._attempt is None:
            return
        if self._uploads is None:
            self._attempt.check()
        elif self._uploads.superseded is not None:
            raise self._uploads.superseded

    def note_failure(self, kept: KeptRun, reason: str, failure: str) -> None:
        """Write to the run file why this driver ends without a verdict, and copy what is left to
        the bucket, for at most `FINAL_UPLOAD_S`. Raises OSError, `Superseded`."""
        noted = msgspec.structs.replace(kept, reason=reason, failure=failure)
        self._write(_run_file(kept.attempt), msgspec.json.encode(noted))
        if self._uploads is not None:
            self._uploads.finish(FINAL_UPLOAD_S)

    def stays(self, verdict: str) -> bool:
        """Return True if there is evidence, and it is to be kept after this verdict. That of an
        earlier run, which is judged again, always stays: it may be the proof of a violation."""
        requested = self._requested
        if self._attempt is None or requested is None:
            return False
        return requested.resume is not None or requested.keeps(verdict)

    def store_results(self, texts: Mapping[str, str]) -> str | None:
        """Write the result files of the run, and copy everything to the bucket, for at most
        `FINAL_UPLOAD_S`. Return None if all is stored, or the run keeps no evidence, else a
        sentence about what is missing. Raises `Superseded`."""
        if self._attempt is None or not self.is_kept:
            return None
        self.check()
        place = f"{RESULTS}/{self._attempt.number:06d}"
        try:
            (self.directory / place).mkdir(mode=0o700, exist_ok=True)
            for name, text in texts.items():
                self._write(f"{place}/{name}", text.encode())
            for path in self.directory.rglob("*"):  # Spark lets its event log be written by a group
                path.chmod(0o700 if path.is_dir() else 0o600)
        except OSError as error:
            return (
                "the driver pod could not write the results of the Verification to its "
                f"evidence files: {error}"
            )
        return self._uploads.finish(FINAL_UPLOAD_S) if self._uploads is not None else None

    def discard(self) -> None:
        """Delete the evidence of this run, in the bucket and in its directory, if the settings name
        a place for it; a failure is only logged, since the verdict stands. Raises `Superseded`."""
        if self._attempt is None or not self.is_kept:
            return
        try:
            self._attempt.check()
            if self._uploads is not None:
                self._uploads.end(FINAL_UPLOAD_S)  # else it would store a file again
            if self._bucket is not None:
                self._bucket.delete(self.name)
            shutil.rmtree(self.directory)
        except (OSError, Unreachable) as error:
            log.warning(
                "the driver pod could not delete the evidence files of Verification %s in %s; "
                "its verdict stands; delete the files by hand if you do not need them: %s",
                *(self._verification, self.place, error),
            )

    def _read(self) -> KeptRun | None:
        try:
            kept = newest_run(self.directory)
            if kept is None and self._bucket is not None and self._download(self._bucket):
                kept = newest_run(self.directory)
            return kept
        except (OSError, Unreachable, Unsafe, msgspec.DecodeError) as error:
            raise self._unusable(error) from error

    def _newest(self) -> KeptRun | None:
        """Return the content of the newest run file where the run is kept. Raises OSError,
        `Unreachable`, DecodeError."""
        if self._bucket is None:
            return newest_run(self.directory)
        names = self._bucket.names(self.name, RUNS)
        newest = f"{RUNS}/{max(names)}" if names else RUN_FILE_0_3
        content = self._bucket.read(self.name, newest)
        return None if content is None else msgspec.json.decode(content, type=KeptRun)

    def _download(self, bucket: Bucket) -> bool:
        """Copy the run from the bucket, so that its directory appears whole or not at all. Return
        False if the bucket has no such run."""
        partial = self.directory.with_name(f"_{self.directory.name}")
        for left in (partial, self.directory):
            shutil.rmtree(left, ignore_errors=True)
        if not bucket.download(self.name, partial):
            return False
        partial.rename(self.directory)
        self._was_downloaded = True
        return True

    def _write(self, name: str, content: bytes) -> None:
        self.check()
        put_whole(self.directory / name, content)

    def _unusable(self, error: Exception) -> Refusal:
        return Refusal(
            Refused.EVIDENCE_UNUSABLE,
            f"the evidence files of Verification {self._verification} in {self.place} cannot be "
            f"used: {error}",
        )


def newest_run(directory: Path) -> KeptRun | None:
    """Return the content of the newest run file in a run's directory; None if there is none. Raises
    OSError, DecodeError."""
    paths = sorted((directory / RUNS).glob("[0-9]*.json"))
    path = paths[-1] if paths else directory / RUN_FILE_0_3
    return msgspec.json.decode(path.read_bytes(), type=KeptRun) if path.exists() else None


def _run_file(attempt: int) -> str:
    return f"{RUNS}/{attempt:06d}.json"


def resumed(kept: KeptRun, settings: Settings) -> KeptRun:
    """Return `kept` with the number of its next attempt. Raises `Refusal` if the settings name
    another topic than that of the run."""
    if kept.topic != settings.topic:
        sentence = (
            f"the run {settings.run_name}, which evidence.resume names, wrote to topic "
            f"{kept.topic}, not to {settings.topic}; set that topic"
        )
        raise Refusal(Refused.WRONG_RUN, sentence)
    return msgspec.structs.replace(kept, attempt=kept.attempt + 1)


def begun(settings: Settings, run_id: str, topic_id: str | None, before: Ranges) -> KeptRun:
    """Return the content of the run file for a run that starts now. `before`: the logs before its
    first record."""
    return KeptRun(
        id=run_id,
        topic=settings.topic,
        topic_id=topic_id,
        produce=settings.produce,
        started_s=time.time(),
        before=bounds(before),
    )


def bucket_of(requested: Requested | None, login: Path | None) -> Bucket | None:
    """Return the bucket that the settings name, None if they name none. `login`: the directory of
    the mounted Secret with its credentials. Raises `Refusal` if that is None and a bucket is
    named."""
    if requested is None or requested.s3 is None:
        return None
    if login is None:
        sentence = "evidence.s3 needs credentials: start the driver pod with --bucket-login DIR"
        raise Refusal(Refused.INVALID_SPEC, sentence)
    return Bucket(requested.s3, login)
