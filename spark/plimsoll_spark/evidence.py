"""The evidence of a run: a directory that may outlive its driver, and from which a later driver
judges the same run.

Called by `run` and `verification`. It holds `run.json`, the ledger, the producers' progress, the
results and Spark's event log. It lies on a volume (a claim, or a directory of this machine), or in
a temporary directory, from which `bucket` copies it to S3 while the run goes on. Once
there is evidence, the run has begun, and its records are in the topic: a driver that finds it
judges it, and writes nothing.
"""

from __future__ import annotations

import logging
import shutil
import time
from collections.abc import Collection, Mapping
from pathlib import Path

import msgspec

from plimsoll_spark.bucket import Bucket, Unreachable, Unsafe
from plimsoll_spark.settings import Evidence as Requested
from plimsoll_spark.settings import Produce, Refusal, Refused, Settings
from plimsoll_spark.topics import OffsetRange, Ranges
from plimsoll_spark.uploads import Uploads
from plimsoll_spark.whole_files import put_whole

RUN_FILE = "run.json"
RESULTS = "results"
EVENTS = "spark-events"
FINAL_UPLOAD_S = 120.0

log = logging.getLogger(__name__)


class KeptRun(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The content of `run.json`: what a later driver must know to judge the run.

    `id`: the run's unique id, of which the salt of its records is made. `started_s`: when it began,
    in seconds since 1970. `before`: by partition, the log start offset and the log end offset
    before the first record. `attempt`: the number of drivers that have worked on the run.
    `failure`, `reason`: why the last one ended without a verdict, None if it could not tell.
    """

    id: str
    topic: str
    topic_id: str | None
    produce: Produce
    started_s: float
    before: dict[int, tuple[int, int]]
    attempt: int = 1
    failure: str | None = None
    reason: str | None = None

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
        self._has_begun = False
        self._parts = parts
        self._was_downloaded = False
        self._requested = settings.evidence
        self._bucket = bucket
        self._uploads: Uploads | None = None
        where = settings.evidence.directory if settings.evidence is not None else None
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
            return "the driver's temporary directory"
        if self._bucket is not None:
            return self._bucket.url(self.name)
        if requested.persistent_volume_claim is not None:
            claim = requested.persistent_volume_claim
            return f"PersistentVolumeClaim {claim}, directory {self.name}"
        return str(self.directory)

    def earlier(self) -> KeptRun | None:
        """Return the content of `run.json` if evidence of this run exists, else None. If it is in
        no directory of this machine but in a bucket, download it first. Raises `Refusal` if the
        settings ask for an earlier run without evidence, or if the place cannot be read."""
        kept = self._read()
        if kept is None and self._requested is not None and self._requested.resume is not None:
            sentence = f"there is no evidence of the run {self.name} in {self.place}"
            raise Refusal(Refused.NOTHING_KEPT, sentence)
        return kept

    def begin(self, kept: KeptRun) -> None:
        """Create the run's directories, write `run.json`, and copy the run's files to the bucket,
        if there is one, from now on. Raises `Refusal` if that is impossible: a run of which nothing
        would be kept does not start."""
        try:
            for part in (self.directory, self.directory / RESULTS, self.directory / EVENTS):
                part.mkdir(mode=0o700, parents=True, exist_ok=True)
            if self._bucket is not None:
                self._uploads = Uploads(self._bucket, self.directory, self.name, self._parts)
                if self._was_downloaded:
                    self._uploads.know()
            self._write(RUN_FILE, msgspec.json.encode(kept))
            self._has_begun = True
            if self._uploads is not None:
                self._uploads.begin(RUN_FILE)
        except (OSError, Unreachable) as error:
            raise self._unusable(error) from error

    def note_failure(self, kept: KeptRun, reason: str, failure: str) -> None:
        """Write to `run.json` why this driver ends without a verdict, and copy what is left to the
        bucket, for at most `FINAL_UPLOAD_S`. Raises OSError."""
        noted = msgspec.structs.replace(kept, reason=reason, failure=failure)
        self._write(RUN_FILE, msgspec.json.encode(noted))
        if self._uploads is not None:
            self._uploads.finish(FINAL_UPLOAD_S)

    def stays(self, verdict: str) -> bool:
        """Return True if there is evidence, and it is to be kept after this verdict."""
        return self._has_begun and self._requested is not None and self._requested.keeps(verdict)

    def store_results(self, texts: Mapping[str, str]) -> str | None:
        """Write the result files of the run, and copy everything to the bucket, for at most
        `FINAL_UPLOAD_S`. Return None if all is stored, or the run keeps no evidence, else a
        sentence about what is missing."""
        if not self._has_begun or not self.is_kept:
            return None
        try:
            for name, text in texts.items():
                self._write(f"{RESULTS}/{name}", text.encode())
            for path in self.directory.rglob("*"):  # Spark lets its event log be written by a group
                path.chmod(0o700 if path.is_dir() else 0o600)
        except OSError as error:
            return f"the results of the run could not be written: {error}"
        return self._uploads.finish(FINAL_UPLOAD_S) if self._uploads is not None else None

    def discard(self) -> None:
        """Delete the evidence of this run, in the bucket and in its directory, if the settings name
        a place for it; a failure is only logged, since the verdict stands."""
        if not self._has_begun or not self.is_kept:
            return
        try:
            if self._uploads is not None:
                self._uploads.end(FINAL_UPLOAD_S)  # else it would store a file again
            if self._bucket is not None:
                self._bucket.delete(self.name)
            shutil.rmtree(self.directory)
        except (OSError, Unreachable) as error:
            log.warning(
                "the evidence of the run in %s could not be deleted; delete it by hand if you do "
                "not need it: %s",
                self.place,
                error,
            )

    def _read(self) -> KeptRun | None:
        path = self.directory / RUN_FILE
        try:
            if self._bucket is not None and not path.exists() and not self._download(self._bucket):
                return None
            return msgspec.json.decode(path.read_bytes(), type=KeptRun) if path.exists() else None
        except (OSError, Unreachable, Unsafe, msgspec.DecodeError) as error:
            raise self._unusable(error) from error

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
        put_whole(self.directory / name, content)

    def _unusable(self, error: Exception) -> Refusal:
        return Refusal(
            Refused.EVIDENCE_UNUSABLE,
            f"the evidence of the run in {self.place} cannot be used: {error}",
        )


def resumed(kept: KeptRun, settings: Settings) -> KeptRun:
    """Return `kept` with the number of its next attempt. Raises `Refusal` if the settings name
    another topic than that of the run."""
    if kept.topic != settings.topic:
        sentence = f"run {settings.run_name} wrote to topic {kept.topic}, not to {settings.topic}"
        raise Refusal(Refused.WRONG_RUN, sentence)
    return msgspec.structs.replace(kept, attempt=kept.attempt + 1)


def begun(settings: Settings, run_id: str, topic_id: str | None, before: Ranges) -> KeptRun:
    """Return the content of `run.json` for a run that starts now. `before`: the logs before its
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
        sentence = "evidence.s3 needs credentials: --bucket-login DIR"
        raise Refusal(Refused.INVALID_SPEC, sentence)
    return Bucket(requested.s3, login)
