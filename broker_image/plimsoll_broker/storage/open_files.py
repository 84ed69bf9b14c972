"""OpenFiles: the open files of logs, at most half of the process's descriptors.

Called by segments and indexes, which open their file on demand and ask for it on every use. Beyond
the bound the least recently used file is dropped: it is closed when its last user is done, and
reopened on its next use. The other half is for connections, the metrics server, checkpoints and
certificates. Any thread may open; each step is one operation of a dictionary. A file with unsynced
writes is dropped last: a new descriptor still reports a failed write-back while the kernel keeps
the inode.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol, TypeVar
from weakref import ref

FILES_MIN = 16
LOOKED_AT_MAX = 32
"""Files that are examined for an unused one, each time one is dropped."""


class OpenFile(Protocol):
    """`unsynced`: True if it was written to and not synced since."""

    unsynced: bool


class Holder(Protocol):
    """A segment's log or index with an open file. `used`: True if it was used since the last
    look."""

    used: bool

    @property
    def open_file(self) -> OpenFile | None: ...
    def let_go(self) -> None: ...


F = TypeVar("F", bound=OpenFile)


class OpenFiles:
    """`files_max`: the limit. Beyond it one file is closed for each that is opened."""

    __slots__ = ("_holders", "closed_for_others", "files_max")

    def __init__(self, descriptors_max: int) -> None:
        """`descriptors_max`: those of the process."""
        self.files_max = max(descriptors_max // 2, FILES_MIN)
        self.closed_for_others = 0
        """Files closed because others were needed; a metric."""
        self._holders: OrderedDict[ref[Holder], None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._holders)

    def opened(self, holder: Holder, opening: Callable[[], F]) -> F:
        """Open the holder's file and count it; others make room. Raises StorageError."""
        while len(self._holders) >= self.files_max and self._let_one_go():
            pass
        file = opening()
        self._holders[ref(holder, self._gone)] = None
        return file

    def let_some_go(self) -> bool:
        """Drop some files, since the process has no descriptor left. Return False if no log has
        any."""
        many = max(len(self._holders) // 8, 1)
        gone = [self._let_one_go() for _ in range(many)]
        return any(gone)

    def closed(self, holder: Holder) -> None:
        """Note that the holder has dropped its file itself."""
        self._holders.pop(ref(holder), None)

    def _gone(self, reference: ref[Holder]) -> None:
        self._holders.pop(reference, None)

    def _let_one_go(self) -> bool:
        """Drop the oldest file that was not used since the last look."""
        for left in reversed(range(LOOKED_AT_MAX)):
            try:
                reference, _ = self._holders.popitem(last=False)
            except KeyError:
                return False
            holder = reference()
            file = None if holder is None else holder.open_file
            if holder is None or file is None:
                return True
            if left and (holder.used or file.unsynced):
                holder.used = False
                self._holders[reference] = None
                continue
            holder.let_go()
            self.closed_for_others += 1
            return True
        return False
