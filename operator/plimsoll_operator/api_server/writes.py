"""Create, update, patch and delete: a request's body becomes a stored object, or a `StatusError`.

One call is one transaction. Called by `server` with the resolved target. Source: apiserver
`pkg/registry/generic/registry/store.go` and `pkg/endpoints/handlers`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

import msgspec

from plimsoll_core.phrasing import counted
from plimsoll_operator.api_server import patches, stored_object
from plimsoll_operator.api_server.kinds import Resource, custom
from plimsoll_operator.api_server.patches import Applied, Path
from plimsoll_operator.api_server.schema_validation import untyped
from plimsoll_operator.api_server.status_errors import (
    StatusCause,
    StatusError,
    already_exists,
    bad_request,
    conflict,
    forbidden,
    invalid,
    not_found,
    not_typed,
)
from plimsoll_operator.api_server.store import Key, Store, StoredObject
from plimsoll_operator.kube import resources
from plimsoll_operator.kube.kube_api import Object

APPLY = frozenset({"application/apply-patch+yaml", "application/apply-patch+json"})
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
GRACE_SECONDS_DEFAULT = 30
_LASTS = frozenset({resources.NAMESPACES.plural, resources.CRDS.plural})
"""Plurals of the kinds (namespaces, CRDs) of which a deleted object stays, terminating, until
`garbage_collection` has deleted everything that belongs to it."""


class RequestTarget(msgspec.Struct, frozen=True, kw_only=True):
    """The target of a request: an object, a collection of objects (`name` None), or an object's
    status."""

    resource: Resource
    namespace: str | None = None
    name: str | None = None
    status: bool = False
    """True for the `/status` subresource."""

    @property
    def key(self) -> Key:
        assert self.name is not None
        return self.namespace or "", self.name


class Writes:
    """Carries out the requests that change objects in the store."""

    def __init__(self, store: Store, now_ms: Callable[[], int], new_uid: Callable[[], str]) -> None:
        self._store = store
        self._now_ms = now_ms
        self._new_uid = new_uid

    # --- create -----------------------------------------------------------------------------------

    def create(
        self, target: RequestTarget, body: Object, *, dry_run: bool, applied: Applied | None = None
    ) -> StoredObject:
        resource = target.resource
        body = stored_object.typed(resource, body)
        uid = ""
        meta = dict(body["metadata"])
        if not meta.get("name") and meta.get("generateName"):
            uid = self._new_uid()
            meta["name"] = meta["generateName"] + _suffix(uid)
        if not meta.get("name"):
            text = "Required value: name or generateName is required"
            cause = StatusCause(field="metadata.name", reason="FieldValueRequired", message=text)
            raise invalid(resource.kind, "", [cause])
        if meta.pop("resourceVersion", ""):
            text = "resourceVersion should not be set on objects to be created"
            raise StatusError(500, "", text)
        self._place(target, meta)
        key = (target.namespace or "", meta["name"])
        if self._store.get(resource, key) is not None:
            raise already_exists(resource.kind, meta["name"])
        body = {**body, "metadata": meta}
        new = stored_object.to_create(resource, body, uid or self._new_uid(), self._now_ms())
        if dry_run:
            return StoredObject(resource, new, self._store.revision)
        if resource.kind == resources.CRDS:
            self._store.serve(custom(new))
        return self._store.put(resource, new, applied)

    def _place(self, target: RequestTarget, meta: Object) -> None:
        """Set the namespace in `meta` to the target's. Raises StatusError if `meta` names another
        one, or if the namespace does not exist or is terminating."""
        if not target.resource.kind.namespaced:
            meta.pop("namespace", None)
            return
        if target.namespace is None:
            raise bad_request("an empty namespace may not be set during creation")
        if meta.setdefault("namespace", target.namespace) != target.namespace:
            raise bad_request(
                "the namespace of the provided object does not match the namespace sent on the "
                "request"
            )
        namespaces = self._store.resources[resources.NAMESPACES.path()]
        found = self._store.get(namespaces, ("", target.namespace))
        if found is None:
            raise not_found(resources.NAMESPACES, target.namespace)
        if found.metadata.get("deletionTimestamp"):
            why = (
                f"unable to create new content in namespace {target.namespace} because it is being "
                "terminated"
            )
            raise forbidden(target.resource.kind, meta["name"], why)

    # --- update -----------------------------------------------------------------------------------

    def replace(self, target: RequestTarget, body: Object, *, dry_run: bool) -> StoredObject:
        body = stored_object.typed(target.resource, body)
        meta = body["metadata"]
        if target.resource.created_by_update and target.key not in self._store.table(
            target.resource
        ):
            return self._create_by_update(target, body, dry_run=dry_run)
        old = self.existing(target)
        if meta.get("name") != target.name:
            raise bad_request("the name of the object does not match the name on the URL")
        stored_object.check_versions(target.resource, old.body, body)
        return self._update(target, old, body, dry_run=dry_run, applied=old.applied)

    def _create_by_update(
        self, target: RequestTarget, body: Object, *, dry_run: bool
    ) -> StoredObject:
        """Create the object of a PUT that finds none. Raises StatusError if the body states a uid,
        or no resourceVersion."""
        meta = dict(body["metadata"])
        if uid := meta.pop("uid", ""):
            raise stored_object.other_uid(target.resource, target.key[1], uid, "")
        if not meta.pop("resourceVersion", ""):
            raise stored_object.unversioned(target.resource, target.key[1])
        return self.create(target, {**body, "metadata": meta}, dry_run=dry_run)

    def _update(
        self,
        target: RequestTarget,
        old: StoredObject,
        body: Object,
        *,
        dry_run: bool,
        applied: Applied,
    ) -> StoredObject:
        meta = body["metadata"]
        if target.namespace is not None and meta.get("namespace") is None:
            body = {**body, "metadata": {**meta, "namespace": target.namespace}}
        new = stored_object.to_update(target.resource, old.body, body, status=target.status)
        if dry_run:
            return StoredObject(target.resource, new, old.revision)
        if new == old.body:
            old.applied = applied
            return old
        if target.resource.kind == resources.CRDS:
            self._store.serve(custom(new))
        stored = self._store.put(target.resource, new, applied)
        return self._end_if_due(stored)

    def existing(self, target: RequestTarget) -> StoredObject:
        """Return the stored object of the target. Raises StatusError (404) if it does not exist."""
        found = self._store.get(target.resource, target.key)
        if found is None:
            raise not_found(target.resource.kind, target.key[1])
        return found

    # --- patch ------------------------------------------------------------------------------------

    def patch(
        self, target: RequestTarget, patch: Object, content_type: str, params: Mapping[str, str]
    ) -> tuple[StoredObject, bool]:
        """Carry out a PATCH of the stated content type. Return (stored object, True if it was
        created); only a server-side apply creates one. With `dryRun` in `params`, store nothing and
        return the object as it would be. Raises StatusError if the request is refused."""
        dry_run = "dryRun" in params
        if content_type in APPLY:
            return self._apply(target, patch, params, dry_run=dry_run)
        old = self.existing(target)
        if content_type == MERGE:
            body = patches.merged(old.body, patch)
        elif content_type == STRATEGIC and target.resource.typed:
            body = patches.strategically_merged(old.body, patch, target.resource.topology)
        else:
            text = f"the body of the request was in an unknown format: {content_type}"
            raise StatusError(415, "UnsupportedMediaType", text)
        stored_object.check_versions(target.resource, old.body, body)
        body = stored_object.typed(target.resource, body)
        return self._update(target, old, body, dry_run=dry_run, applied=old.applied), False

    def _apply(
        self, target: RequestTarget, config: Object, params: Mapping[str, str], *, dry_run: bool
    ) -> tuple[StoredObject, bool]:
        manager = params.get("fieldManager")
        if not manager:
            raise bad_request("fieldManager is required for apply patch")
        resource = target.resource
        config = stored_object.typed(resource, config)
        config["metadata"].setdefault("name", target.name)
        old = self._store.get(resource, target.key)
        if old is None and target.status:
            raise not_found(resource.kind, target.key[1])
        config = _own_part(resource, config, status=target.status)
        _refuse_untyped(target, config)
        wanted = patches.stated(config, resource.topology)
        manager = f"{manager}/status" if target.status else manager
        if old is None:
            new = {manager: frozenset(wanted)}
            return self.create(target, config, dry_run=dry_run, applied=new), True
        version = config["metadata"].get("resourceVersion")
        if version not in (None, "", old.metadata["resourceVersion"]):
            raise conflict(resource.kind, target.key[1])
        others = {name: paths for name, paths in old.applied.items() if name != manager}
        contested = (
            patches.contested(old.body, wanted, resource.topology) if others else frozenset()
        )
        if params.get("force") != "true" and (found := patches.disputes(others, contested)):
            count = counted(len(found), "conflict")
            raise StatusError(409, "Conflict", f"Apply failed with {count}: {', '.join(found)}")
        others = {name: left for name, paths in others.items() if (left := paths - contested)}
        before: frozenset[Path] = old.applied.get(manager, frozenset())
        held: frozenset[Path] = frozenset().union(*others.values())
        body = patches.applied(old.body, config, resource.topology)
        gone = before - wanted.keys()
        body = patches.without(body, gone - held, held | wanted.keys(), resource.topology)
        if target.status and "status" not in body:
            raise _null(target, ["status"])
        now = {**others, manager: frozenset(wanted)}
        return self._update(target, old, body, dry_run=dry_run, applied=now), False

    # --- delete -----------------------------------------------------------------------------------

    def delete(
        self, target: RequestTarget, options: Object, *, dry_run: bool
    ) -> StoredObject | None:
        """Delete the target object. Return None if it is removed at once, else the stored object,
        which is now terminating. With `dry_run` change nothing and return the object. Raises
        StatusError if it does not exist, or (409) if a precondition in `options` fails."""
        old = self.existing(target)
        wanted = options.get("preconditions") or {}
        stored_object.check_preconditions(target.resource, old.body, wanted)
        if dry_run:
            return old
        if options.get("propagationPolicy") == "Orphan":
            self._orphan(old)
        seconds = _grace_seconds(target.resource, old, options)
        lasts = target.resource.kind.plural in _LASTS
        if not (old.metadata.get("finalizers") or seconds or lasts):
            self._store.remove(old)
            return None
        going = _going(target.resource, old.body, seconds, self._now_ms())
        if going == old.body:
            return old
        return self._store.put(target.resource, going, old.applied)

    def _orphan(self, owner: StoredObject) -> None:
        uid = owner.metadata["uid"]
        for root, key in tuple(self._store.dependents.get(uid, ())):
            found = self._store.get(self._store.resources[root], key)
            if found is not None:
                self.drop_owners(found, frozenset({uid}))

    def drop_owners(self, stored: StoredObject, uids: frozenset[str]) -> StoredObject:
        """Store the object without the ownerReferences to owners with a uid in `uids`. Return the
        stored object."""
        meta = dict(stored.metadata)
        left = [owner for owner in meta["ownerReferences"] if owner["uid"] not in uids]
        del meta["ownerReferences"]
        if left:
            meta["ownerReferences"] = left
        body = {**stored.body, "metadata": meta}
        return self._store.put(stored.resource, body, stored.applied)

    def _end_if_due(self, stored: StoredObject) -> StoredObject:
        """Remove the object if it is terminating and has neither a finalizer nor a grace period
        left. Return the stored object as it is then, or as it was when removed."""
        meta = stored.metadata
        waits = meta.get("finalizers") or meta.get("deletionGracePeriodSeconds")
        if not meta.get("deletionTimestamp") or waits:
            return stored
        if stored.resource.kind.plural in _LASTS:
            return stored
        return self._store.remove(stored)


def _refuse_untyped(target: RequestTarget, config: Object) -> None:
    """Raise StatusError if `config`, the body of a server-side apply, has nulls or values of wrong
    types. A real API server checks this before anything else."""
    resource = target.resource
    if resource.schema is None:
        return
    if nulls := list(_nulls({k: config[k] for k in ("spec", "status") if k in config}, "")):
        raise _null(target, nulls)
    for name, schema in resource.schema.get("properties", {}).items():
        if name in config and name != "metadata":
            why = next(untyped(config[name], schema, f".{name}"), None)
            if why is not None:
                raise not_typed(resource.kind, target.namespace or "", target.key[1], why)


def _nulls(value: object, path: str) -> Iterator[str]:
    if value is None:
        yield path
    elif isinstance(value, dict):
        for name, field in value.items():
            if field is None or isinstance(field, dict | list):
                yield from _nulls(field, f"{path}.{name}" if path else name)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            if item is None or isinstance(item, dict | list):
                yield from _nulls(item, f"{path}[{index}]")


def _null(target: RequestTarget, fields: Iterable[str]) -> StatusError:
    text = 'Invalid value: "null": {} in body must be of another type: "null"'
    causes = [
        StatusCause(field=field, reason="FieldValueTypeInvalid", message=text.format(field))
        for field in fields
    ]
    return invalid(target.resource.kind, target.key[1], causes)


def _own_part(resource: Resource, config: Object, *, status: bool) -> Object:
    """Return the part of an apply's body that the request may set: with `status`, only the status
    and what identifies the object; otherwise all but the status of a kind with the subresource
    `/status`."""
    if status:
        meta = {
            name: config["metadata"][name]
            for name in ("name", "resourceVersion")
            if name in config["metadata"]
        }
        return {
            **{key: config[key] for key in ("apiVersion", "kind", "status") if key in config},
            "metadata": meta,
        }
    if resource.has_status:
        return {key: value for key, value in config.items() if key != "status"}
    return config


def _grace_seconds(resource: Resource, old: StoredObject, options: Object) -> int:
    """Return how many seconds a deleted object may take to end: the requested or the pod's own
    grace period for a pod with a node that has not ended, else 0."""
    if resource.kind != resources.PODS:
        return 0
    spec = old.body.get("spec") or {}
    phase = (old.body.get("status") or {}).get("phase")
    if not spec.get("nodeName") or phase in ("Succeeded", "Failed"):
        return 0
    asked = options.get("gracePeriodSeconds")
    given = spec.get("terminationGracePeriodSeconds", GRACE_SECONDS_DEFAULT)
    return int(given if asked is None else asked)


def _going(resource: Resource, body: Object, seconds: int, now_ms: int) -> Object:
    """Return the body of a terminating object, with a deletionTimestamp `seconds` after `now_ms`.
    Return it unchanged if it already terminates no later than that."""
    meta = dict(body["metadata"])
    earlier = meta.get("deletionGracePeriodSeconds", seconds)
    if "deletionTimestamp" in meta and seconds >= earlier:
        return body
    if "deletionTimestamp" not in meta and "generation" in meta:
        meta["generation"] += 1
    meta["deletionTimestamp"] = stored_object.timestamp(now_ms + 1_000 * seconds)
    meta["deletionGracePeriodSeconds"] = seconds
    out = {**body, "metadata": meta}
    if resource.kind == resources.NAMESPACES:
        out["status"] = {**(body.get("status") or {}), "phase": "Terminating"}
    return out


def _suffix(uid: str) -> str:
    """Return five characters of the uid, for the end of a generated name."""
    return "".join(char for char in uid.lower() if char.isalnum())[-5:].rjust(5, "x")
