"""All objects under one revision counter, the latest changes, and the watchers of changes.

An object's body is never changed in place: a write stores a new body, which may share parts with
the old one. So a backup, a page of a list and a watch hold references, and nothing is copied. The
store applies no rule of the API; `writes` and `server` do.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from plimsoll_operator.api_server.kinds import BUILT_IN, Resource
from plimsoll_operator.api_server.patches import Applied
from plimsoll_operator.kube.kube_api import Object

HISTORY_CHANGES = 10_000
"""Bound on the changes kept for watches that start at an earlier revision. A real API server keeps
those of the last five minutes."""
FIRST_REVISION = 100

Key = tuple[str, str]
"""(namespace, or "" for cluster-scoped objects; name)."""
ChangeType = Literal["ADDED", "MODIFIED", "DELETED"]


class StoredObject:
    """One object at one revision. Its JSON is encoded when it is first needed, and then kept.
    `applied`: for each manager of fields, the paths of the fields that it last applied."""

    __slots__ = ("_encoded", "_item", "applied", "body", "resource", "revision")

    def __init__(
        self, resource: Resource, body: Object, revision: int, applied: Applied | None = None
    ) -> None:
        self.resource = resource
        self.body = body
        self.revision = revision
        self.applied: Applied = applied or {}
        self._encoded: bytes | None = None
        self._item: bytes | None = None

    @property
    def metadata(self) -> Object:
        found: Object = self.body["metadata"]
        return found

    @property
    def labels(self) -> Mapping[str, str]:
        return self.metadata.get("labels") or {}

    @property
    def key(self) -> Key:
        return self.metadata.get("namespace") or "", self.metadata["name"]

    @property
    def encoded(self) -> bytes:
        if self._encoded is None:
            self._encoded = msgspec.json.encode(self.body)
        return self._encoded

    @property
    def item(self) -> bytes:
        """Return the object's JSON as it stands in a list: without apiVersion and kind if the kind
        is built in."""
        if not self.resource.typed:
            return self.encoded
        if self._item is None:
            bare = {k: v for k, v in self.body.items() if k not in ("apiVersion", "kind")}
            self._item = msgspec.json.encode(bare)
        return self._item


class ObjectChange(msgspec.Struct, frozen=True, kw_only=True):
    """One write to the store. `before`: None if the object was created. `after`: for a deletion,
    the deleted object with the revision of the deletion."""

    type: ChangeType
    before: StoredObject | None
    after: StoredObject

    @property
    def resource(self) -> Resource:
        return self.after.resource


Observer = Callable[[ObjectChange], None]
Tables = dict[str, dict[Key, StoredObject]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Backup:
    """All objects as of one revision, for `Store.restore`."""

    tables: Tables
    revision: int


class Store:
    """The objects of one API server, by kind, namespace and name. Each write calls every function
    in `observers` with its `ObjectChange` before it returns."""

    def __init__(self) -> None:
        self.revision = FIRST_REVISION
        self.resources: dict[str, Resource] = {row.root: row for row in BUILT_IN}
        self.servings = 0
        """How often the set of served kinds has changed."""
        self.observers: list[Observer] = []
        self.history: deque[ObjectChange] = deque(maxlen=HISTORY_CHANGES)
        self.history_since = FIRST_REVISION
        """The oldest revision from which a watch can start: `history` has all later changes."""
        self.at_restore: list[Callable[[], None]] = []
        """Functions that `restore` calls. Each open watch has one, which ends it."""
        self.dependents: dict[str, dict[tuple[str, Key], None]] = {}
        """For the uid of each owner (existing or not): the objects with an ownerReference to it, as
        (kind, key)."""
        self.uids: dict[str, None] = {}
        self._tables: Tables = {}

    # --- reading ----------------------------------------------------------------------------------

    def table(self, resource: Resource) -> Mapping[Key, StoredObject]:
        return self._tables.get(resource.root, {})

    def get(self, resource: Resource, key: Key) -> StoredObject | None:
        return self._tables.get(resource.root, {}).get(key)

    def listed(self, resource: Resource, namespace: str | None) -> list[StoredObject]:
        """Return the objects of a kind in one namespace (None: in all), sorted by namespace and
        name."""
        found = self._tables.get(resource.root, {})
        if namespace is None:
            return [found[key] for key in sorted(found)]
        return [found[key] for key in sorted(found) if key[0] == namespace]

    # --- writing ----------------------------------------------------------------------------------

    def put(self, resource: Resource, body: Object, applied: Applied | None = None) -> StoredObject:
        """Store the body under the next revision, as a new object or as the next version of the
        object of that key. Return the stored object, with the revision as its resourceVersion.
        `applied` replaces that of the previous version; None: no manager has applied fields."""
        self.revision += 1
        meta = {**body["metadata"], "resourceVersion": str(self.revision)}
        after = StoredObject(resource, {**body, "metadata": meta}, self.revision, applied)
        table = self._tables.setdefault(resource.root, {})
        before = table.get(after.key)
        if before is not None:
            self._forget(before)
        table[after.key] = after
        self._remember(after)
        self._tell(ObjectChange(type="MODIFIED" if before else "ADDED", before=before, after=after))
        return after

    def remove(self, stored: StoredObject) -> StoredObject:
        """Remove an object, which must exist, under the next revision. Return it with that revision
        as its resourceVersion."""
        self.revision += 1
        del self._tables[stored.resource.root][stored.key]
        self._forget(stored)
        meta = {**stored.metadata, "resourceVersion": str(self.revision)}
        after = StoredObject(stored.resource, {**stored.body, "metadata": meta}, self.revision)
        self._tell(ObjectChange(type="DELETED", before=stored, after=after))
        return after

    def _tell(self, change: ObjectChange) -> None:
        if len(self.history) == HISTORY_CHANGES:
            self.history_since = self.history[0].after.revision
        self.history.append(change)
        for observer in tuple(self.observers):
            observer(change)

    # --- who owns whom ----------------------------------------------------------------------------

    def _remember(self, stored: StoredObject) -> None:
        self.uids[stored.metadata["uid"]] = None
        for owner in stored.metadata.get("ownerReferences") or ():
            known = self.dependents.setdefault(owner["uid"], {})
            known[stored.resource.root, stored.key] = None

    def _forget(self, stored: StoredObject) -> None:
        self.uids.pop(stored.metadata["uid"], None)
        for owner in stored.metadata.get("ownerReferences") or ():
            known = self.dependents.get(owner["uid"], {})
            known.pop((stored.resource.root, stored.key), None)
            if not known:
                self.dependents.pop(owner["uid"], None)

    # --- back in time -----------------------------------------------------------------------------

    def backup(self) -> Backup:
        tables = {root: dict(table) for root, table in self._tables.items()}
        return Backup(tables=tables, revision=self.revision)

    def restore(self, backup: Backup) -> None:
        """Replace all objects and the revision by those of the backup. Observers are not called.
        All open watches end, as when the API servers are restarted, which Kubernetes demands after
        etcd was restored."""
        self._tables = {root: dict(table) for root, table in backup.tables.items()}
        self.revision = self.history_since = backup.revision
        self.history.clear()
        self.dependents.clear()
        self.uids.clear()
        for table in self._tables.values():
            for stored in table.values():
                self._remember(stored)
        for end in tuple(self.at_restore):
            end()

    def serve(self, resources: Iterable[Resource]) -> None:
        self.servings += 1
        for resource in resources:
            self.resources[resource.root] = resource

    def stop_serving(self, resources: Iterable[Resource]) -> None:
        self.servings += 1
        for resource in resources:
            self.resources.pop(resource.root, None)
