"""Keeps two LogClusters with one cluster id, such as the source of a restored backup and its copy,
from writing into one place: the higher epoch of the one would hide the history of the other.

The writer of a backup stores an object that names its LogCluster, and stores it again every
`CLAIM_MS`. Another LogCluster writes only once that has not happened for `OWNED_MS`, by its own
clock. So a LogCluster that continues a lost one waits for minutes, and needs no person.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

from plimsoll_operator.backup.backup_stores import BackupStore

NAME = "owner"
CLAIM_MS = 60_000
OWNED_MS = 5 * CLAIM_MS
BYTES_MAX = 4_096
_KEY = re.compile(r"[a-z0-9./-]{1,512}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PlaceOwner:
    """A LogCluster: its uid, and namespace/name."""

    uid: str
    key: str


class OwnedByAnother(Exception):
    """Raised if another LogCluster writes into the place. The message is a sentence."""


class _StoredOwner(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    uid: str
    key: str
    at_ms: int


_claim = msgspec.json.Decoder(_StoredOwner)


async def claim(store: BackupStore, owner: PlaceOwner, now_ms: int, *, stored: bool) -> None:
    """Store that `owner` writes into the place. `stored`: True if an owner is stored there. Raises
    `OwnedByAnother` and `StoreUnavailable`."""
    known = _read(await store.read(NAME, BYTES_MAX)) if stored else None
    if known is not None and known.uid != owner.uid and abs(now_ms - known.at_ms) < OWNED_MS:
        raise OwnedByAnother(
            f"LogCluster {known.key} with the same cluster id writes its backup into {store.place},"
            " so this one does not. Give each a bucket or prefix of its own. If that LogCluster is"
            f" gone, this one begins within {OWNED_MS // 60_000} minutes."
        )
    made = _StoredOwner(uid=owner.uid, key=owner.key, at_ms=now_ms)
    await store.write(NAME, msgspec.json.encode(made))


def _read(data: bytes) -> _StoredOwner | None:
    """Return the claim in an object; None if it is unreadable, as anybody may have written it."""
    try:
        found = _claim.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return found if _KEY.fullmatch(found.key) else None
