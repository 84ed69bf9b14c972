"""Places of backups: a directory. An object appears whole or not at all, and is never changed."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from plimsoll_operator.metalog.directory import write_whole

NAMES_MAX = 200_000
"""Most objects of one place. A place with more is refused."""
R = TypeVar("R")
_FILE = re.compile(r"[a-z0-9-]{1,200}")


class StoreUnavailable(Exception):
    """Raised if a place cannot be read or written at present. The message is a sentence without an
    end."""


@dataclass(frozen=True, slots=True)
class StoredName:
    """An object in a place, and its size in bytes."""

    name: str
    size: int


class BackupStore(Protocol):
    """A place for the backup of one cluster. Each method raises `StoreUnavailable`."""

    @property
    def place(self) -> str:
        """Return the place for people."""

    async def stored(self) -> list[StoredName]:
        """Return all objects, in any order."""

    async def write(self, name: str, data: bytes) -> None:
        """Store an object durably: whole, or not at all. One with this name is replaced."""

    async def read(self, name: str, bytes_max: int) -> bytes:
        """Return the content of an object, at most `bytes_max` bytes of it."""

    async def delete(self, name: str) -> None:
        """Delete an object. Do nothing if there is none."""

    async def close(self) -> None: ...


class DirectoryBackup:
    """`BackupStore` over the files of the directory `path`, which the first write creates."""

    def __init__(self, path: Path) -> None:
        self._path = path

    @property
    def place(self) -> str:
        return str(self._path)

    async def stored(self) -> list[StoredName]:
        return await self._in_thread(self._list)

    async def write(self, name: str, data: bytes) -> None:
        def write() -> None:
            self._path.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_whole(self._path / name, data, private=True)

        await self._in_thread(write)

    async def read(self, name: str, bytes_max: int) -> bytes:
        def read() -> bytes:
            with (self._path / name).open("rb") as file:
                return file.read(bytes_max)

        return await self._in_thread(read)

    async def delete(self, name: str) -> None:
        await self._in_thread(lambda: (self._path / name).unlink(missing_ok=True))

    async def close(self) -> None: ...

    async def _in_thread(self, work: Callable[[], R]) -> R:
        try:
            return await asyncio.to_thread(work)
        except OSError as error:
            raise StoreUnavailable(
                f"the backup directory {self._path} cannot be used: {error.strerror}"
            ) from error

    def _list(self) -> list[StoredName]:
        found: list[StoredName] = []
        if not self._path.exists():
            return found
        for path in self._path.iterdir():
            if len(found) > NAMES_MAX:
                raise StoreUnavailable(
                    f"the backup directory {self._path} has more than {NAMES_MAX} files; remove "
                    "those that are not of the backup"
                )
            if _FILE.fullmatch(path.name) and not path.is_symlink() and path.is_file():
                size = path.stat().st_size
                found.append(StoredName(path.name, size))  # stats may fail
        return found
