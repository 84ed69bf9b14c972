"""A small API server in memory: objects by kind, resourceVersions, conflicts, failures on order."""

import json
from typing import Any

from plimsoll_operator.kube.errors import ApiError, Conflict, NotFound, Rejected
from plimsoll_operator.kube.port import Listed, Object
from plimsoll_operator.kube.resources import Kind

Key = tuple[str, str | None, str]


class FakeKube:
    """`fail`: the next calls raise these, one each.  `refuse`: what a verb always raises.  `calls`:
    (verb, kind, name)."""

    def __init__(self) -> None:
        self.objects: dict[Key, Object] = {}
        self.calls: list[tuple[str, str, str]] = []
        self.fail: list[ApiError | None] = []
        self.refuse: dict[str, ApiError] = {}
        self.server_ms = 1_000_000
        self._version = 0

    def put(self, kind: Kind, body: Object) -> Object:
        meta = body["metadata"]
        self._version += 1
        stored = {**body, "metadata": {**meta, "resourceVersion": str(self._version)}}
        stored["metadata"].setdefault("uid", f"uid-{self._version}")
        key = (kind.plural, meta.get("namespace"), meta["name"])
        before = self.objects.get(key)
        if before is not None and "generation" in before["metadata"]:
            edited = before.get("spec") != stored.get("spec")
            stored["metadata"]["generation"] = before["metadata"]["generation"] + edited
        self.objects[key] = stored
        return _copy(stored)

    def drop(self, kind: Kind, namespace: str | None, name: str) -> None:
        del self.objects[(kind.plural, namespace, name)]

    def find(self, kind: Kind, namespace: str | None, name: str) -> Object:
        return self.objects[(kind.plural, namespace, name)]

    async def get(
        self, kind: Kind, namespace: str | None, name: str, *, timeout_s: float = 1
    ) -> Object:
        self._called("get", kind, name)
        return _copy(self._existing(kind, namespace, name))

    async def list(
        self,
        kind: Kind,
        namespace: str | None = None,
        *,
        label_selector: str | None = None,
        field_selector: str | None = None,
        metadata_only: bool = False,
    ) -> Listed:
        self._called("list", kind, namespace or "")
        items = [
            _copy(body)
            for (plural, where, _), body in self.objects.items()
            if plural == kind.plural
            and namespace in (None, where)
            and _selected(body, label_selector)
            and _matches(body, field_selector)
        ]
        return Listed(items=tuple(items), resource_version="1", server_ms=self.server_ms)

    async def first(self, kind: Kind, namespace: str, *, label_selector: str) -> Object | None:
        found = (await self.list(kind, namespace, label_selector=label_selector)).items
        return found[0] if found else None

    async def create(self, kind: Kind, manifest: Object, *, timeout_s: float = 1) -> Object:
        meta = manifest["metadata"]
        self._called("create", kind, meta["name"])
        if (kind.plural, meta.get("namespace"), meta["name"]) in self.objects:
            raise Conflict(409, "it exists")
        return self.put(
            kind, {"metadata": {}, **manifest} | {"metadata": {**meta, "generation": 1}}
        )

    async def replace(
        self, kind: Kind, manifest: Object, *, timeout_s: float = 1, dry_run: bool = False
    ) -> Object:
        meta = manifest["metadata"]
        self._called("try" if dry_run else "replace", kind, meta["name"])
        known = self._existing(kind, meta.get("namespace"), meta["name"])
        if known["metadata"]["resourceVersion"] != meta["resourceVersion"]:
            raise Conflict(409, "it changed")
        return _copy(manifest) if dry_run else self.put(kind, manifest)

    async def apply(self, kind: Kind, manifest: Object) -> Object:
        meta = manifest["metadata"]
        self._called("apply", kind, meta["name"])
        known = self.objects.get((kind.plural, meta.get("namespace"), meta["name"]))
        if known is not None and _states(known, manifest):
            return _copy(known)
        uid = {"uid": known["metadata"]["uid"]} if known else {}
        return self.put(kind, {**manifest, "metadata": {**meta, **uid}})

    async def apply_status(self, kind: Kind, namespace: str, name: str, status: Object) -> Object:
        self._called("status", kind, name)
        if "null" in json.dumps(status).replace('"null"', ""):
            raise Rejected(422, f"{name} is invalid: a null where something belongs")
        known = self._existing(kind, namespace, name)
        return self.put(kind, {**known, "status": status})

    async def merge(self, kind: Kind, namespace: str, name: str, patch: Object) -> Object:
        self._called("merge", kind, name)
        known = self._existing(kind, namespace, name)
        return self.put(kind, _merged(known, patch))

    async def delete(
        self, kind: Kind, namespace: str, name: str, *, uid: str, grace_seconds: int | None = None
    ) -> None:
        self._called("delete" if grace_seconds is None else "force", kind, name)
        if self._existing(kind, namespace, name)["metadata"]["uid"] != uid:
            raise Conflict(409, "another uid")
        self.drop(kind, namespace, name)

    def _existing(self, kind: Kind, namespace: str | None, name: str) -> Object:
        found = self.objects.get((kind.plural, namespace, name))
        if found is None:
            raise NotFound(404, f"{kind.plural} {name}")
        return found

    def _called(self, verb: str, kind: Kind, name: str) -> None:
        self.calls.append((verb, kind.plural, name))
        failure = self.fail.pop(0) if self.fail else None
        if failure is not None:
            raise failure
        if verb in self.refuse:
            raise self.refuse[verb]


def _copy(body: Any) -> Any:
    if isinstance(body, dict):
        return {key: _copy(value) for key, value in body.items()}
    return [_copy(item) for item in body] if isinstance(body, list) else body


def _merged(known: Any, patch: Any) -> Any:
    if not isinstance(known, dict) or not isinstance(patch, dict):
        return patch
    return {**known, **{key: _merged(known.get(key), value) for key, value in patch.items()}}


def _matches(body: Any, selector: str | None) -> bool:
    for part in (selector or "").split(","):
        found = body
        path, _, value = part.partition("=")
        for name in path.split(".") if path else ():
            found = found.get(name, {})
        if path and found != value:
            return False
    return True


def _states(known: Any, manifest: Any) -> bool:
    """Whether the manifest says nothing that is not so already."""
    if isinstance(known, dict) and isinstance(manifest, dict):
        return all(key in known and _states(known[key], manifest[key]) for key in manifest)
    return bool(known == manifest)


def _selected(body: Object, selector: str | None) -> bool:
    labels = body["metadata"].get("labels") or {}
    for part in (selector or "").split(","):
        if "!=" in part:
            key, value = part.split("!=")
            if labels.get(key) == value:
                return False
        elif "=" in part:
            key, value = part.split("=")
            if labels.get(key) != value:
                return False
        elif part and part not in labels:
            return False
    return True
