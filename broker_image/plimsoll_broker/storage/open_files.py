"""Which files of logs are open: at most half of the process's descriptors are theirs.

Called by segments and indexes, which open their file when it is needed and take the open one from
here on every use.  Beyond the bound the file that was not used for longest is let go of; it is
closed when its last user has returned, and opened again on its next use.  The other half belongs to
connections, the metrics server, checkpoints and certificates.

Any thread may open; each step is one operation of a dictionary.  A file whose writes were not
synced is let go of last: a new descriptor still learns of a failed write-back, as long as the
kernel keeps the inode.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol, TypeVar
from weakref import ref

FILES_MIN = 16
LOOKED_AT_MAX = 32
"""Files that are looked at for one that has not been used, each time one is let go of."""


class OpenFile(Protocol):
    """`unsynced`: written to, and not synced since."""

    unsynced: bool


class Holder(Protocol):
    """A segment's log or index, whose file may be open.  `used`: since it was last looked at."""

    used: bool

    @property
    def open_file(self) -> OpenFile | None: ...
    def let_go(self) -> None: ...


F = TypeVar("F", bound=OpenFile)


class OpenFiles:
    """`files_max`: how many may be open.  Beyond it one is closed for each that is opened."""

    __slots__ = ("_holders", "closed_for_others", "files_max")

    def __init__(self, descriptors_max: int) -> None:
        """`descriptors_max`: of the process."""
        self.files_max = max(descriptors_max // 2, FILES_MIN)
        self.closed_for_others = 0
        """Files that were let go of because others were needed; a metric."""
        self._holders: OrderedDict[ref[Holder], None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._holders)

    def opened(self, holder: Holder, opening: Callable[[], F]) -> F:
        """Open the holder's file, and count it; others make room.  Raises StorageError."""
        while len(self._holders) >= self.files_max and self._let_one_go():
            pass
        file = opening()
        self._holders[ref(holder, self._gone)] = None
        return file

    def let_some_go(self) -> bool:
        """The process has no descriptor left, by whomever they are used; False: no log has any."""
        many = max(len(self._holders) // 8, 1)
        gone = [self._let_one_go() for _ in range(many)]
        return any(gone)

    def closed(self, holder: Holder) -> None:
        """The holder has let go of its file by itself."""
        self._holders.pop(ref(holder), None)

    def _gone(self, reference: ref[Holder]) -> None:
        self._holders.pop(reference, None)

    def _let_one_go(self) -> bool:
        """Let go of the file that was opened first and not used since it was last looked at."""
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
