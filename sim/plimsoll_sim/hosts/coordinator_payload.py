"""Names of the batches that coordinators of groups write: what each of their records says.

Made where logs are read (`payload.ident_of`), taken apart by the checkers of compaction.  So a
batch is known also when a cleaner has taken some of its records, or has made its header anew.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from hashlib import blake2b
from typing import NamedTuple

_MARK = b"\x00"
"""No client's name of a batch begins like this."""
_PLACE = struct.Struct(">q")
_RECORD = struct.Struct(">I8s8s")
_DIGEST_BYTES = 8


class CoordinatorRecord(NamedTuple):
    """A record: how far behind its batch's first offset, and digests of its key and of all that it
    says, its time included."""

    delta: int
    key: bytes
    content: bytes


def digest(*parts: bytes) -> bytes:
    return blake2b(b"\x00".join(parts), digest_size=_DIGEST_BYTES).digest()


def name_of(base_offset: int, records: Iterable[CoordinatorRecord]) -> bytes:
    """The name of a batch that begins there."""
    return b"".join((_MARK, _PLACE.pack(base_offset), *(_RECORD.pack(*one) for one in records)))


def is_coordinators(ident: bytes) -> bool:
    return ident.startswith(_MARK)


def records_in(ident: bytes) -> list[CoordinatorRecord]:
    """The records that a coordinator's batch has by its name."""
    rows = ident[len(_MARK) + _PLACE.size :]
    return [CoordinatorRecord(*row) for row in _RECORD.iter_unpack(rows)]


def is_left_of(left: bytes, whole: bytes) -> bool:
    """Return True if a batch of that name may be what a cleaner left of the other one: nothing is
    in it that was not there."""
    if left == whole or not left:
        return True
    if not (is_coordinators(left) and is_coordinators(whole)):
        return False
    same_place = left[: len(_MARK) + _PLACE.size] == whole[: len(_MARK) + _PLACE.size]
    return same_place and set(records_in(left)) <= set(records_in(whole))
