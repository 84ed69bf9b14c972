"""Watches of the objects of one kind, from a revision on: each change becomes one line of JSON.

A watch has no clock and no task: `server` and `serving` take its lines when they are woken.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import msgspec

from plimsoll_operator.api_server.kinds import Resource
from plimsoll_operator.api_server.status_errors import StatusError, bad_request, expired
from plimsoll_operator.api_server.store import ObjectChange, Store, StoredObject

LINES_MAX = 10_000
"""Maximum number of lines of one watch that its client has not read yet. Beyond it the watch ends,
and the client must list again."""

Encode = Callable[[StoredObject], bytes]


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The objects that a list or a watch covers: those of one kind, in one namespace (None: all),
    for which `takes` returns True. `encode` returns the JSON that represents an object."""

    resource: Resource
    namespace: str | None
    takes: Callable[[StoredObject], bool]
    encode: Encode


class Watch:
    """One open watch of `selection`, from the resourceVersion `version` on ("" or "0": it begins
    with all present objects). If etcd was restored and `version` is not reached yet, the watch is
    silent up to it, as on a real API server. `lines`: encoded events that the client has not read
    yet; `on_line`: called when a line is added and when the watch ends; `ended`: True if no more
    lines will follow."""

    def __init__(self, store: Store, selection: Selection, version: str) -> None:
        self.lines: deque[bytes] = deque()
        self.ended = False
        self.on_line: Callable[[], None] = lambda: None
        self._store = store
        self._selection = selection
        self._since = 0
        self._begin(version)
        if not self.ended:
            store.observers.append(self._observe)
            store.at_restore.append(self._end)

    def close(self) -> None:
        self.ended = True
        if self._observe in self._store.observers:
            self._store.observers.remove(self._observe)
            self._store.at_restore.remove(self._end)

    def _end(self) -> None:
        """End the watch without an event: its connection is closed."""
        self.close()
        self.on_line()

    def take(self) -> list[bytes]:
        """Return and remove the lines added since the last call."""
        taken = list(self.lines)
        self.lines.clear()
        return taken

    def _begin(self, version: str) -> None:
        if version in ("", "0"):
            for stored in self._store.listed(self._selection.resource, self._selection.namespace):
                if self._selection.takes(stored):
                    self._add("ADDED", stored)
            return
        if not version.isdecimal():
            raise bad_request(f'resourceVersion: Invalid value: "{version}"')
        since = int(version)
        if since < self._store.history_since:
            text = f"too old resource version: {since} ({self._store.history_since})"
            self._fail(expired(text))
            return
        self._since = since
        for change in self._store.history:
            self._observe(change)

    def _observe(self, change: ObjectChange) -> None:
        chosen = self._selection
        if change.resource.root != chosen.resource.root or self.ended:
            return
        if change.after.revision <= self._since:
            return
        if chosen.namespace is not None and change.after.key[0] != chosen.namespace:
            return
        before = change.before is not None and chosen.takes(change.before)
        if change.type == "DELETED":
            if before:
                self._add("DELETED", change.after)
            return
        now = chosen.takes(change.after)
        if now:
            self._add("MODIFIED" if before else "ADDED", change.after)
        elif before:
            # The object is no longer selected: send it as it was, at the revision at which it left.
            assert change.before is not None
            version = change.after.metadata["resourceVersion"]
            meta = {**change.before.metadata, "resourceVersion": version}
            body = {**change.before.body, "metadata": meta}
            self._add("DELETED", StoredObject(chosen.resource, body, change.after.revision))

    def _add(self, type_: str, stored: StoredObject) -> None:
        if len(self.lines) >= LINES_MAX:
            self.lines.clear()
            self._fail(expired("too old resource version: the client does not read"))
            return
        shown = self._selection.encode(stored)
        self.lines.append(b'{"type":"%s","object":%s}' % (type_.encode(), shown))
        self.on_line()

    def _fail(self, error: StatusError) -> None:
        """End the watch with a last event of type ERROR. The client must list again."""
        self.lines.append(msgspec.json.encode({"type": "ERROR", "object": error.body}))
        self.close()
        self.on_line()
