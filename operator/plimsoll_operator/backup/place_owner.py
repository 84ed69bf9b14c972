"""Keeps two LogClusters with one cluster id, such as the source of a restored backup and its copy,
from writing into one place: the higher epoch of the one would hide the history of the other.

The writer of a backup stores an object that names its LogCluster, and stores it anew every
`CLAIM_MS`. Another LogCluster writes only once it has seen no change of that object for
`OWNED_MS`, by its monotonic clock. So no clock that jumps, and none that differs, takes a place
away. A LogCluster that continues a lost one waits for minutes, and needs no person.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from uuid import uuid4

import msgspec

from plimsoll_operator.backup.backup_stores import BackupStore

NAME = "owner"
CLAIM_MS = 60_000
OWNED_MS = 4 * CLAIM_MS
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
    """`at_ms`: the writer's wall clock, by which earlier releases judge; `token`: differs each
    time, whatever the clock says."""

    uid: str
    key: str
    at_ms: int
    token: str = ""


_claim = msgspec.json.Decoder(_StoredOwner)


class PlaceClaims:
    """The claims of one process's LogCluster on places. `now_ms`: the wall clock; `monotonic_ms`:
    the clock by which another's claim is watched."""

    def __init__(self, now_ms: Callable[[], int], monotonic_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._monotonic_ms = monotonic_ms
        # The claim of another LogCluster as read last, its place, and when it was seen first.
        self._seen: tuple[str, bytes] = ("", b"")
        self._since_ms = 0

    async def claim(self, store: BackupStore, owner: PlaceOwner, *, stored: bool) -> None:
        """Store that `owner` writes into the place. `stored`: True if an owner is stored there.
        Raises `OwnedByAnother` and `StoreUnavailable`."""
        data = await store.read(NAME, BYTES_MAX) if stored else b""
        known = _read(data)
        if known is not None and known.uid != owner.uid and self._is_watched(store.place, data):
            raise OwnedByAnother(_why(store.place, owner, known))
        made = _StoredOwner(
            uid=owner.uid, key=owner.key, at_ms=self._now_ms(), token=uuid4().hex[:16]
        )
        await store.write(NAME, msgspec.json.encode(made))

    def _is_watched(self, place: str, data: bytes) -> bool:
        """Return True until another's claim has stayed the same for `OWNED_MS`."""
        now_ms = self._monotonic_ms()
        if self._seen != (place, data):
            self._seen, self._since_ms = (place, data), now_ms
        return now_ms - self._since_ms < OWNED_MS


def _why(place: str, owner: PlaceOwner, known: _StoredOwner) -> str:
    minutes = f"{OWNED_MS // 60_000} minutes"
    if known.key == owner.key:  # applied again, or of the same name in another Kubernetes
        return (
            f"A former LogCluster {known.key} wrote its backup into {place}, so this one first "
            f"makes sure that it has stopped, and begins by itself within {minutes}. If this "
            "message stays, a LogCluster of the same name in another Kubernetes cluster writes "
            "there: give each a bucket or prefix of its own."
        )
    return (
        f"LogCluster {known.key} with the same cluster id writes its backup into {place},"
        " so this one does not. Give each a bucket or prefix of its own. If that LogCluster is"
        f" gone, this one begins within {minutes}."
    )


def _read(data: bytes) -> _StoredOwner | None:
    """Return the claim in an object; None if it is unreadable, as anybody may have written it."""
    try:
        found = _claim.decode(data)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return found if _KEY.fullmatch(found.key) else None
