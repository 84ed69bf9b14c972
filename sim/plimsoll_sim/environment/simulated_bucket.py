"""A place for backups that may be gone, or lose requests, answers and objects.

The operator's shipped code decides what it writes and which of it can be restored; this module only
keeps the bytes.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import TypeVar

from plimsoll_operator.backup.backup_stores import StoredName, StoreUnavailable

LATENCY_S = (0.005, 0.2)
R = TypeVar("R")


class BackupBucket:
    """A bucket of a simulated cluster: the objects of each directory, by name. `down`: every
    request fails; `fails`: the share of requests that fail, half of them once they are carried out.
    `wrote` is called with each object that is stored."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.directories: dict[str, dict[str, bytes]] = {}
        self.down = False
        self.fails = 0.0
        self.wrote: Callable[[str, bytes], None] = lambda _name, _data: None

    def objects(self, directory: object) -> dict[str, bytes]:
        return self.directories.setdefault(str(directory), {})

    def heal(self) -> None:
        self.down, self.fails = False, 0.0


class SimulatedBucket:
    """`BackupStore` over one directory of a bucket."""

    def __init__(self, bucket: BackupBucket, directory: str) -> None:
        self._bucket = bucket
        self._objects = bucket.objects(directory)

    @property
    def place(self) -> str:
        return "the bucket"

    async def stored(self) -> list[StoredName]:
        def listed() -> list[StoredName]:
            return [StoredName(name, len(data)) for name, data in sorted(self._objects.items())]

        return await self._request(listed)

    async def write(self, name: str, data: bytes) -> None:
        def write() -> None:
            self._objects[name] = data
            self._bucket.wrote(name, data)

        await self._request(write)

    async def read(self, name: str, bytes_max: int) -> bytes:
        def read() -> bytes:
            if name not in self._objects:
                raise StoreUnavailable(f"the bucket has no object {name}")
            return self._objects[name][:bytes_max]

        return await self._request(read)

    async def delete(self, name: str) -> None:
        def delete() -> None:
            self._objects.pop(name, None)

        await self._request(delete)

    async def close(self) -> None:
        """Do nothing: there is no connection to close."""

    async def _request(self, act: Callable[[], R]) -> R:
        bucket = self._bucket
        await asyncio.sleep(bucket.rng.uniform(*LATENCY_S))
        failed = bucket.down or bucket.rng.random() < bucket.fails
        if failed and (bucket.down or bucket.rng.random() < 0.5):
            raise StoreUnavailable("the bucket does not answer")
        answer = act()
        if failed:
            raise StoreUnavailable("the bucket's answer was lost")
        return answer
