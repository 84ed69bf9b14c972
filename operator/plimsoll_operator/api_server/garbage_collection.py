"""Garbage collection: dependents of deleted owners, contents of deleted namespaces and CRDs.

A host calls `collect` on its clock, since the controllers of a real cluster never finish at once.
Only background deletion is supported: a dependent is deleted after its last owner.
"""

from __future__ import annotations

from plimsoll_operator.api_server.kinds import custom
from plimsoll_operator.api_server.server import MemoryApiServer
from plimsoll_operator.api_server.store import StoredObject
from plimsoll_operator.api_server.writes import RequestTarget
from plimsoll_operator.kube import resources


def collect(server: MemoryApiServer) -> None:
    """Run one round: delete the contents of terminating namespaces and CRDs, and remove those that
    are empty; then delete objects that have lost all owners, until nothing changes. Contents and
    dependents with a grace period or finalizers only begin to terminate."""
    _end_namespaces(server)
    _end_definitions(server)
    _collect_dependents(server)


def _collect_dependents(server: MemoryApiServer) -> None:
    store = server.store
    gone = [uid for uid in store.dependents if uid not in store.uids]
    while gone:
        for root, key in [one for uid in gone for one in store.dependents.get(uid, ())]:
            found = store.get(store.resources[root], key) if root in store.resources else None
            if found is not None:
                _collect_one(server, found)
        before, gone = gone, [uid for uid in store.dependents if uid not in store.uids]
        if set(gone) <= set(before):
            return


def _collect_one(server: MemoryApiServer, dependent: StoredObject) -> None:
    """Delete the object `dependent` if none of its owners exists any more. If only some of its
    owners are gone, remove these from its ownerReferences."""
    uids = frozenset(owner["uid"] for owner in dependent.metadata.get("ownerReferences") or ())
    absent = frozenset(uid for uid in uids if uid not in server.store.uids)
    if absent == uids:
        delete(server, dependent)
    elif absent:
        server.writes.drop_owners(dependent, absent)


def delete(server: MemoryApiServer, stored: StoredObject) -> None:
    """Delete an object as a client's DELETE without options would: its own grace period and
    finalizers apply. Do nothing if it is terminating already."""
    if stored.metadata.get("deletionTimestamp"):
        return
    namespace, name = stored.key
    target = RequestTarget(resource=stored.resource, namespace=namespace or None, name=name)
    server.writes.delete(target, {}, dry_run=False)


def _end_namespaces(server: MemoryApiServer) -> None:
    store = server.store
    for going in _going(server, resources.NAMESPACES.path()):
        name = going.metadata["name"]
        for resource in list(store.resources.values()):
            for stored in store.listed(resource, name) if resource.kind.namespaced else ():
                delete(server, stored)
        if not any(store.listed(r, name) for r in store.resources.values() if r.kind.namespaced):
            _end(server, going)


def _end_definitions(server: MemoryApiServer) -> None:
    store = server.store
    for going in _going(server, resources.CRDS.path()):
        served = [store.resources[r.root] for r in custom(going.body) if r.root in store.resources]
        for stored in [one for resource in served for one in store.listed(resource, None)]:
            delete(server, stored)
        if not any(store.listed(resource, None) for resource in served):
            store.stop_serving(served)
            _end(server, going)


def _going(server: MemoryApiServer, root: str) -> list[StoredObject]:
    listed = server.store.listed(server.store.resources[root], None)
    return [stored for stored in listed if stored.metadata.get("deletionTimestamp")]


def _end(server: MemoryApiServer, stored: StoredObject) -> None:
    if not stored.metadata.get("finalizers"):
        server.store.remove(stored)
