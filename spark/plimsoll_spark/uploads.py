"""Copies a run's directory to a bucket while it grows.

Called by `evidence`. It works in a thread of the driver, so that no producer waits for the bucket:
the run's directory holds what is not copied yet. Before each object it looks whether a later driver
works on the run, and then copies nothing more.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from plimsoll_spark.attempts import Superseded
from plimsoll_spark.bucket import Bucket, Unreachable

EVERY_S = 1.0
SLOWLY_EVERY_S = 30.0
SLOWLY = "spark-events"
"""The directory of Spark's event log, which grows all the time: it is copied at most every
`SLOWLY_EVERY_S` seconds."""
DELETED = ("ledger/", "judge/")
"""If the run deletes a file of these directories, it is deleted in the bucket too."""

log = logging.getLogger(__name__)


class Uploads:
    """Copies files of a run's directory to the bucket whenever they are new or have changed."""

    def __init__(
        self,
        bucket: Bucket,
        directory: Path,
        run: str,
        check: Callable[[], None],
        parts: Collection[str] | None = None,
    ) -> None:
        """`directory`: that of the run, with the files to copy; `run`: its name in the bucket;
        `check`: raises `Superseded` if another driver works on the run; `parts`: the names in the
        directory that are copied, None for all."""
        self.superseded: Superseded | None = None
        self._check = check
        self._bucket = bucket
        self._directory = directory
        self._run = run
        self._parts = parts
        # By name, size and time of change of what the bucket has.
        self._stored: dict[str, tuple[int, int]] = {}
        self._slowly_at_s = 0.0
        self._failure: str | None = None
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._work, name="evidence", daemon=True)

    def know(self, *, is_stored: bool) -> None:
        """Take all present files for objects of the bucket: each is deleted there after it is
        deleted here. `is_stored`: True if they were just downloaded, so that each is copied only
        after it changes."""
        for name in list(self._changed(everything=True)):
            self._stored[name] = _state(self._directory / name) if is_stored else (-1, -1)

    def begin(self, first: str) -> None:
        """Copy the file named `first`, then start a thread that copies new and changed files every
        `EVERY_S` seconds until `finish`. Raises `Unreachable`, `Superseded` or OSError if `first`
        cannot be copied, `Superseded` also if another driver began meanwhile; no thread runs
        then."""
        self._store(first)
        self._check()
        self._thread.start()

    def end(self, within_s: float) -> None:
        """End the thread, and wait at most `within_s` seconds for the request that it makes."""
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(within_s)

    def finish(self, within_s: float) -> str | None:
        """End the thread and copy all new and changed files, with retries, for at most `within_s`
        seconds. Return None if the bucket has every file, else a sentence with the number of files
        that it lacks and the cause. Raises `Superseded`."""
        until_s = time.monotonic() + within_s
        self.end(within_s)
        if self.superseded is not None:
            raise self.superseded
        while not self._thread.is_alive():
            try:
                self._store_new(everything=True)
                return None
            except (OSError, Unreachable) as error:
                self._failure = str(error)
            if time.monotonic() + EVERY_S >= until_s:
                break
            time.sleep(EVERY_S)
        left = sum(1 for _ in self._changed(everything=True))
        return (
            f"{left} evidence files of the Verification's run could not be copied to the bucket, "
            "and are only in the driver's directory: "
            f"{self._failure or 'the bucket answers too slowly'}. Correct the bucket, and repeat "
            "the Verification if you need the evidence."
        )

    def _work(self) -> None:
        while not self._ending.wait(EVERY_S):
            try:
                self._store_new(everything=False)
            except Superseded as superseded:
                self.superseded = superseded
                return
            except (OSError, Unreachable) as error:
                if self._failure is None:
                    log.warning(
                        "the driver pod could not copy the evidence files of the Verification's "
                        "run to %s; it keeps them in its own directory and tries again: %s",
                        *(self._bucket.url(self._run), error),
                    )
                self._failure = str(error)

    def _store_new(self, *, everything: bool) -> None:
        for name in self._changed(everything=everything):
            if self._ending.is_set() and not everything:
                return
            self._store(name)
        for name in [one for one in self._stored if one.startswith(DELETED)]:
            if self._ending.is_set() and not everything:
                return
            if not (self._directory / name).exists():
                self._check()
                self._bucket.remove(self._run, name)
                del self._stored[name]
        if self._failure is not None:
            log.warning(
                "the driver pod has copied all evidence files of the Verification's run to %s, "
                "after earlier failures; nothing needs to be done",
                self._bucket.url(self._run),
            )
        self._failure = None

    def _changed(self, *, everything: bool) -> Iterator[str]:
        """Yield the names of complete files that are new or changed since they were stored.
        `everything`: False to leave out Spark's event log unless `SLOWLY_EVERY_S` have passed."""
        slowly = everything or time.monotonic() >= self._slowly_at_s
        if slowly:
            self._slowly_at_s = time.monotonic() + SLOWLY_EVERY_S
        tops = sorted(self._directory.iterdir())
        tops = [one for one in tops if self._parts is None or one.name in self._parts]
        for path in (found for top in tops for found in (top, *sorted(top.rglob("*")))):
            name = path.relative_to(self._directory).as_posix()
            if path.name[0] in "_." or path.suffix == ".partial" or not path.is_file():
                continue
            if (slowly or not name.startswith(SLOWLY)) and self._stored.get(name) != _state(path):
                yield name

    def _store(self, name: str) -> None:
        path = self._directory / name
        state = _state(path)
        self._check()
        try:
            self._bucket.upload(path, self._run, name)
        except FileNotFoundError:
            return  # deleted meanwhile, or renamed
        self._stored[name] = state


def _state(path: Path) -> tuple[int, int]:
    try:
        found = path.stat()
    except FileNotFoundError:  # Spark renames its event log
        return 0, 0
    return found.st_size, found.st_mtime_ns
