"""The objects of a local cluster: an API server in memory, and the file that stores them between
runs.

All objects are stored except CRDs (they ship with the software), Leases (they belong to processes)
and Events. The whole file is written soon after a change of a spec, and later after a change of a
status. Objects that files declared at an earlier start and no longer declare are removed: another
LogCluster, and each Reassignment, Rebalance, Verification or User in no file. Topics stay, and so
do fields that other managers applied. Called by `cluster`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import msgspec

from plimsoll_core.release import RELEASE
from plimsoll_operator.api.labels import BROKER_ID
from plimsoll_operator.api.load import Resource
from plimsoll_operator.api_server.account_tokens import AccountTokens
from plimsoll_operator.api_server.kinds import shipped
from plimsoll_operator.api_server.owned_pods import ENDED
from plimsoll_operator.api_server.required_fields import missing
from plimsoll_operator.api_server.server import MemoryApiServer
from plimsoll_operator.api_server.stateful_sets import found, listed
from plimsoll_operator.api_server.store import ObjectChange, StoredObject
from plimsoll_operator.kube import resources
from plimsoll_operator.kube.kube_api import APPLY, HttpRequest, Object
from plimsoll_operator.kube.resources import Kind
from plimsoll_operator.local.documents import KIND_OF, Documents, manifest
from plimsoll_operator.local.layout import BadDirectory, DirectoryLayout
from plimsoll_operator.local.user_files import UserFiles
from plimsoll_operator.metalog.directory import write_whole
from plimsoll_operator.process_clocks import wall_ms
from plimsoll_process.waits import set_within

logger = logging.getLogger("plimsoll.local")

MANAGER = "plimsoll-local"
"""The field manager by which the objects of the files are applied."""
NODE = "this-machine"
NOT_KEPT = frozenset({resources.CRDS, resources.LEASES, resources.EVENTS, resources.CORE_EVENTS})
OF_BROKERS = frozenset({resources.PODS, resources.STATEFUL_SETS})
SOON_MS = 200
LATER_MS = 5_000


class NotApplied(Exception):
    """The API server in memory refused an object of the files. The message is a sentence for the
    user."""


class KeptObject(msgspec.Struct, frozen=True, kw_only=True):
    """One object in the file. `root`: the path of its kind; `applied`: the fields that each manager
    last applied."""

    root: str
    body: dict[str, Any]
    applied: dict[str, list[tuple[str, ...]]]


class KeptObjects(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file: all kept objects as of one revision, and the release that wrote
    them."""

    release: str
    revision: int
    objects: list[KeptObject]


class LocalObjects:
    """The API server in memory of one local cluster, `server`, filled from the file of an earlier
    run. `save_forever` and `save` write its objects to the file."""

    def __init__(self, layout: DirectoryLayout) -> None:
        self.layout = layout
        # The uid of the object that is applied now; empty: any.
        self._next_uid = ""
        # When the file has to be written, by the loop's clock in ms; None: it is up to date.
        self._due_ms: float | None = None
        # Set when `_due_ms` is earlier than it was.
        self._changed = asyncio.Event()
        self.server = MemoryApiServer(
            wall_ms,
            self._new_uid,
            definitions=shipped(),
            namespaces=(),
            tokens=AccountTokens(wall_ms),
        )
        self._restore()
        self.server.seed(resources.NODES, {"metadata": {"name": NODE}})
        self.ensure_namespace("default")
        self.server.store.observers.append(self._observe)
        self.server.store.observers.append(UserFiles(layout.users).observe)

    def _new_uid(self) -> str:
        uid, self._next_uid = self._next_uid, ""
        return uid or str(uuid4())

    # --- what files declare -----------------------------------------------------------------------

    def ensure_namespace(self, name: str) -> None:
        if found(self.server, resources.NAMESPACES, "", name) is None:
            self.server.seed(resources.NAMESPACES, {"metadata": {"name": name}})

    def apply(self, resource: Resource) -> StoredObject:
        """Apply a resource of the files as `kubectl apply --server-side --force-conflicts` does,
        and return the stored object. Its namespace is created if absent. An object of that name
        with another uid, which the files declared earlier, is removed first; a new object gets the
        resource's uid. Raises NotApplied if the resource is invalid."""
        kind, meta = KIND_OF[type(resource).__name__], resource.metadata
        self.ensure_namespace(meta.namespace)
        known = found(self.server, kind, *resource.key)
        if known is not None and known.metadata["uid"] != meta.uid and _is_of_files(known):
            self.server.store.remove(
                known
            )  # the file now declares another object under the same name
        self._next_uid = meta.uid
        answer = self.server.handle(
            HttpRequest(
                method="PATCH",
                path=kind.path(*resource.key),
                params={"fieldManager": MANAGER, "force": "true"},
                body=msgspec.json.encode(manifest(resource)),
                content_type=APPLY,
            )
        )
        self._next_uid = ""
        if answer.status >= 400:
            why = msgspec.json.decode(answer.body)["message"]
            raise NotApplied(f"cannot apply {kind.kind} {meta.name}: {why}")
        stored = found(self.server, kind, *resource.key)
        assert stored is not None
        return stored

    def of_files(self, kind: Kind) -> Iterator[StoredObject]:
        """Yield the objects of a kind that the files declare, or declared at an earlier start."""
        return (stored for stored in listed(self.server, kind) if _is_of_files(stored))

    def drop(self, stored: StoredObject) -> None:
        """Remove an object that no file declares any more. If another manager has applied fields of
        it, outside its status, keep it, and only remove the mark that the files declared it."""
        others = {name: paths for name, paths in stored.applied.items() if name != MANAGER}
        if any(not name.endswith("/status") for name in others):
            stored.applied = others
        else:
            self.server.store.remove(stored)

    def drop_brokers(self) -> None:
        """Remove the StatefulSets and pods of all brokers from the API server. No process is
        stopped by that; the operator creates them anew from the present spec."""
        for kind in OF_BROKERS:
            for stored in listed(self.server, kind):
                if BROKER_ID in stored.labels:
                    self.server.store.remove(stored)

    # --- the file ---------------------------------------------------------------------------------

    def _restore(self) -> None:
        path, store = self.layout.objects, self.server.store
        if not path.exists():
            return
        try:
            kept = msgspec.json.decode(path.read_bytes(), type=KeptObjects)
        except msgspec.DecodeError as error:
            raise BadDirectory(
                f"the file {path}, which must hold the Kubernetes objects of the local cluster, "
                f"is damaged: {error}; restore the file, or use another directory"
            ) from error
        store.revision = store.history_since = max(store.revision, kept.revision)
        for one in kept.objects:
            if one.root in store.resources and self._is_whole(one):
                applied = {name: frozenset(paths) for name, paths in one.applied.items()}
                body = _fresh(one.body, same_release=kept.release == RELEASE)
                store.put(store.resources[one.root], body, applied)
        if kept.release != RELEASE:
            self.drop_brokers()

    def _is_whole(self, one: KeptObject) -> bool:
        """Return False, and log it, if the object lacks a field that this release requires."""
        kind = self.server.store.resources[one.root].kind
        found = next(missing(kind, one.body), None)
        if found is not None:
            logger.warning(
                "the local cluster does not load %s %s, which an earlier release accepted; correct "
                "the object's field and apply the object again: %s: %s",
                *(kind.kind, one.body["metadata"]["name"], found.field, found.message),
            )
        return found is None

    def _kept(self) -> KeptObjects:
        store = self.server.store
        return KeptObjects(
            release=RELEASE,
            revision=store.revision,
            objects=[
                KeptObject(
                    root=resource.root,
                    body=stored.body,
                    applied={name: sorted(paths) for name, paths in stored.applied.items()},
                )
                for resource in store.resources.values()
                if resource.kind not in NOT_KEPT
                for stored in store.listed(resource, None)
            ],
        )

    def save(self) -> None:
        """Write the file now; a failure is only logged. `save_forever` must not run at the same
        time."""
        self._due_ms = None
        self._write(msgspec.json.encode(self._kept()))

    async def save_forever(self) -> None:
        """Write the file, until cancelled: `SOON_MS` after a change, `LATER_MS` after a change of a
        status alone. A write that fails is repeated after `LATER_MS`."""
        while True:
            await self._changed.wait()
            self._changed.clear()
            while self._due_ms is not None and (wait_ms := self._due_ms - _now_ms()) > 0:
                await set_within(self._changed, wait_ms / 1000)
                self._changed.clear()
            self._due_ms = None
            content = msgspec.json.encode(self._kept())
            writing = asyncio.ensure_future(asyncio.to_thread(self._write, content))
            try:
                written = await asyncio.shield(writing)
            except asyncio.CancelledError:
                await asyncio.wait([writing])  # the thread is still writing, and `save` may follow
                raise
            if not written:
                self._due_ms = _now_ms() + LATER_MS
                self._changed.set()

    def _write(self, content: bytes) -> bool:
        """Write the file. Return False, and log the reason, if that fails."""
        try:
            write_whole(self.layout.objects, content, private=True)
        except OSError as error:
            logger.warning(
                "the local cluster cannot save its Kubernetes objects to %s, so changes are lost "
                "if it stops now; it tries again every %d s: %s",
                *(self.layout.objects, LATER_MS // 1000, error),
            )
            return False
        return True

    def _observe(self, change: ObjectChange) -> None:
        if change.resource.kind in NOT_KEPT:
            return
        due_ms = _now_ms() + (LATER_MS if _only_status(change) else SOON_MS)
        if self._due_ms is None or due_ms < self._due_ms:
            self._due_ms = due_ms
            self._changed.set()


def _is_of_files(stored: StoredObject) -> bool:
    return MANAGER in stored.applied


def _fresh(body: Object, *, same_release: bool) -> Object:
    """Return a stored object without everything that was true only in the earlier run: the state of
    a pod, and the conditions of a LogCluster, or its whole status if another release wrote it."""
    kind = body["kind"]
    if kind == resources.PODS.kind:
        return {**body, "status": _fresh_pod(body)}
    if kind == resources.LOG_CLUSTERS.kind:
        status = {} if not same_release else dict(body.get("status") or {})
        status.pop("conditions", None)
        return {**body, "status": status}
    return body


def _fresh_pod(pod: Object) -> Object:
    """Return the status with which a stored pod starts: Pending. A pod that runs once stays
    Succeeded or Failed, or becomes Failed if it had not ended."""
    status: Object = pod.get("status") or {}
    if pod["spec"].get("restartPolicy") != "Never":
        return {"phase": "Pending"}
    if status.get("phase") in ENDED:
        return status
    return {
        "phase": "Failed",
        "message": (
            "This driver pod of a Verification ended early, because the local cluster was stopped. "
            "If the Verification gets no verdict, create it again."
        ),
    }


def _only_status(change: ObjectChange) -> bool:
    if change.before is None or change.type != "MODIFIED":
        return False
    before, after = change.before.body, change.after.body
    return before.get("spec") == after.get("spec") and _meta(before) == _meta(after)


def _meta(body: Object) -> Object:
    return {key: value for key, value in body["metadata"].items() if key != "resourceVersion"}


def _now_ms() -> float:
    return asyncio.get_running_loop().time() * 1000


def drop_undeclared(objects: LocalObjects, documents: Documents) -> None:
    declared = {(KIND_OF[type(one).__name__], one.metadata.uid) for one in documents.others}
    for stored in list(objects.of_files(resources.LOG_CLUSTERS)):
        if stored.key != documents.cluster.key:
            objects.drop(stored)
    for kind in (*resources.RUN_ONCE, resources.VERIFICATION_SCHEDULES, resources.USERS):
        for stored in list(objects.of_files(kind)):
            if (kind, stored.metadata["uid"]) not in declared:
                objects.drop(stored)
