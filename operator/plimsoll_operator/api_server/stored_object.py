"""Derives the stored object from a body that creates or updates it. Pure.

Holds the rules of all kinds; `kinds.Resource` states which of them hold for one kind. Defaults of
built-in kinds are in `defaults`. Not checked: validity of built-in kinds' specs beyond immutable
fields, admission plug-ins, quotas. Source: apiserver `pkg/registry/rest/{create,update}.go`,
apimachinery `pkg/api/validation`.
"""

from __future__ import annotations

import functools
from datetime import UTC, datetime

from plimsoll_operator.api_server import name_rules, required_fields
from plimsoll_operator.api_server.defaults import with_defaults
from plimsoll_operator.api_server.kinds import Resource
from plimsoll_operator.api_server.status_errors import (
    StatusCause,
    StatusError,
    bad_request,
    conflict,
    invalid,
    precondition_failed,
)
from plimsoll_operator.kube.kube_api import Object

_ONLY_THE_SERVER_SETS = (
    "uid", "creationTimestamp", "generation", "deletionTimestamp", "deletionGracePeriodSeconds",
)  # fmt: skip


def timestamp(now_ms: int) -> str:
    """Format milliseconds since 1970 as Kubernetes does: `2026-11-24T12:00:00Z`."""
    return _timestamp(now_ms // 1000)


@functools.lru_cache(maxsize=100)
def _timestamp(now_s: int) -> str:
    return datetime.fromtimestamp(now_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def typed(resource: Resource, body: Object) -> Object:
    """Return the body with apiVersion, kind and metadata, adding those that it lacks. Raises
    StatusError if apiVersion or kind differ from the resource's, or if the body of a custom
    resource lacks one of them."""
    kind = resource.kind
    right = {"apiVersion": kind.api_version, "kind": kind.kind}
    for name, wanted in right.items():
        stated = body.get(name)
        if stated is None and not resource.typed:
            raise bad_request(f"Object '{name[0].upper()}{name[1:]}' is missing in the request")
        if stated not in (None, wanted):
            raise bad_request(f"the {name} in the data ({stated}) does not match {wanted}")
    if not isinstance(body.get("metadata", {}), dict):
        raise bad_request("metadata is not an object")
    return {**right, **body, "metadata": body.get("metadata") or {}}


def to_create(resource: Resource, body: Object, uid: str, now_ms: int) -> Object:
    """Return the object to store for a create. The metadata in `body` must already hold name and
    namespace. Raises StatusError if the body is invalid."""
    meta = {k: v for k, v in body["metadata"].items() if k not in _ONLY_THE_SERVER_SETS}
    meta |= {"uid": uid, "creationTimestamp": timestamp(now_ms)}
    if resource.has_generation:
        meta["generation"] = 1
    if resource.finalizer is not None:
        given = meta.get("finalizers") or []
        meta["finalizers"] = [*given, *({resource.finalizer} - {*given})]
    out = {**body, "metadata": meta}
    if resource.has_status:
        out.pop("status", None)
        if resource.new_status is not None:
            out["status"] = dict(resource.new_status)
    return _checked(resource, out)


def to_update(resource: Resource, old: Object, body: Object, *, status: bool) -> Object:
    """Return the object to store when `old` is updated by `body`; with `status`, only its status
    changes. It keeps the old resourceVersion; the store assigns the next one if the object differs.
    Raises StatusError if the body is invalid or changes an immutable field."""
    before, given = old["metadata"], body["metadata"]
    kept = {name: before[name] for name in _ONLY_THE_SERVER_SETS if name in before}
    kept["resourceVersion"] = before["resourceVersion"]
    if status:
        out = {**old, "status": body["status"]} if "status" in body else _without_status(old)
        return _checked(resource, out)
    meta = {k: v for k, v in given.items() if k not in _ONLY_THE_SERVER_SETS} | kept
    out = {**body, "metadata": meta}
    if resource.has_status:
        out = _without_status(out)
        if "status" in old:
            out["status"] = old["status"]
    out = _checked(resource, out)
    _refuse_fixed(resource, old, out)
    if resource.has_generation and _differs(resource, old, out):
        meta = {**out["metadata"], "generation": before.get("generation", 0) + 1}
        out["metadata"] = meta
    return out


def check_versions(resource: Resource, old: Object, body: Object) -> None:
    """Raise StatusError if the body states another uid or resourceVersion than `old` has, or lacks
    a resourceVersion that the kind requires."""
    before, given = old["metadata"], body["metadata"]
    name = before["name"]
    if given.get("uid") not in (None, "", before["uid"]):
        raise other_uid(resource, name, given["uid"], before["uid"])
    version = given.get("resourceVersion")
    if version in (None, ""):
        if resource.needs_version:
            raise unversioned(resource, name)
    elif version != before["resourceVersion"]:
        raise conflict(resource.kind, name)


def unversioned(resource: Resource, name: str) -> StatusError:
    """Return the error (422) for an update without a resourceVersion, for kinds that require
    one."""
    text = "Invalid value: 0: must be specified for an update"
    cause = StatusCause(field="metadata.resourceVersion", reason="FieldValueInvalid", message=text)
    return invalid(resource.kind, name, [cause])


def check_preconditions(resource: Resource, old: Object, wanted: Object) -> None:
    """Raise StatusError (409) if `wanted`, the preconditions of a DELETE, states another uid or
    resourceVersion than `old` has."""
    meta = old["metadata"]
    uid, version = wanted.get("uid"), wanted.get("resourceVersion")
    if uid is not None and uid != meta["uid"]:
        text = (
            f"the UID in the precondition ({uid}) does not match the UID in record "
            f"({meta['uid']}). The object might have been deleted and then recreated"
        )
        raise precondition_failed(resource.kind, meta["name"], text)
    if version is not None and version != meta["resourceVersion"]:
        text = (
            f"the ResourceVersion in the precondition ({version}) does not match the "
            f"ResourceVersion in record ({meta['resourceVersion']}). The object might have been "
            "modified"
        )
        raise precondition_failed(resource.kind, meta["name"], text)


def other_uid(resource: Resource, name: str, stated: str, found: str) -> StatusError:
    text = f"Precondition failed: UID in precondition: {stated}, UID in object meta: {found}"
    return conflict(resource.kind, name, text)


def _without_status(body: Object) -> Object:
    return {key: value for key, value in body.items() if key != "status"}


def _differs(resource: Resource, old: Object, new: Object) -> bool:
    """Return True if the objects differ outside metadata and status. The status of a custom
    resource without the subresource `/status` counts as well."""
    apart = {"metadata", "status"} if resource.has_status or resource.typed else {"metadata"}
    return any(old.get(key) != new.get(key) for key in {*old, *new} - apart)


def _checked(resource: Resource, body: Object) -> Object:
    """Return the body pruned and with defaults. Raises StatusError that lists every invalid
    field."""
    causes = list(name_rules.wrong_metadata(resource.kind, body["metadata"]))
    causes += required_fields.missing(resource.kind, body)
    if resource.check is None:
        causes += name_rules.wrong_parts(resource.kind, body)
        out = body if causes else with_defaults(resource.kind, body)
    else:
        known = {key: body[key] for key in ("apiVersion", "kind", "metadata")}
        out = {**known, **resource.check(body, "", causes)}
    if causes:
        raise invalid(resource.kind, body["metadata"]["name"], causes)
    return out


def _refuse_fixed(resource: Resource, old: Object, new: Object) -> None:
    before, after = old.get("spec") or {}, new.get("spec") or {}
    changed: list[str] = []
    if resource.fixed or resource.spec_fixed_but is not None:
        changed = sorted(name for name in {*before, *after} if before.get(name) != after.get(name))
    if resource.spec_fixed_but is not None:
        changed = [name for name in changed if name not in resource.spec_fixed_but]
        fields = ["spec"] if changed else []
    else:
        fields = [f"spec.{name}" for name in changed if name in resource.fixed]
    if old.get("immutable") and any(
        old.get(key) != new.get(key) for key in ("data", "binaryData", "immutable")
    ):
        fields.append("data")
    sentence = resource.fixed_sentence
    if fields == ["data"]:
        sentence = "Forbidden: field is immutable when `immutable` is set"
    causes = [
        StatusCause(field=field, reason="FieldValueForbidden", message=sentence) for field in fields
    ]
    if causes:
        raise invalid(resource.kind, new["metadata"]["name"], causes)
