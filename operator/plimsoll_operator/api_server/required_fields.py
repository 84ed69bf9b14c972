"""Fields that Kubernetes requires in objects of built-in kinds, as far as the controllers of the
API server in memory read them: an object without them would end its host, and again at each start.

Pure. Called by `stored_object` for every object that a client writes. Source: kubernetes
`pkg/apis/{core,apps,batch}/validation`, release 1.34.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from plimsoll_operator.api_server.status_errors import StatusCause
from plimsoll_operator.kube import resources
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import Kind

_OWNER = ("apiVersion", "kind", "name", "uid")
_NUMBERS = {
    resources.JOBS: ("backoffLimit", "activeDeadlineSeconds"),
    resources.STATEFUL_SETS: ("replicas", "ordinals.start"),
    resources.PODS: ("terminationGracePeriodSeconds",),
}
_STORAGE = "resources.requests.storage"


def missing(kind: Kind, body: Object) -> Iterator[StatusCause]:
    """Yield an error for each field that is missing or of a wrong type, in an object of any kind
    in its metadata, in one of a built-in kind also elsewhere."""
    yield from _metadata(body["metadata"])
    spec = body.get("spec")
    for path in _NUMBERS.get(kind, ()):
        value = _at(spec, path)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            yield _wrong(f"spec.{path}", "a number")
    if kind == resources.PODS:
        yield from _pod(spec, "spec")
    elif kind in (resources.JOBS, resources.STATEFUL_SETS):
        if not isinstance(_at(spec, "template.spec"), dict):
            yield _required("spec.template.spec")
        yield from _pod(_at(spec, "template.spec"), "spec.template.spec")
        yield from _claims(_at(spec, "volumeClaimTemplates"))
    elif kind == resources.VOLUME_CLAIMS and not isinstance(_at(spec, _STORAGE), str):
        yield _required(f"spec.{_STORAGE}")


def _metadata(meta: Object) -> Iterator[StatusCause]:
    for index, owner in enumerate(_list(meta.get("ownerReferences"))):
        for field in _OWNER:
            if not isinstance(_at(owner, field), str):
                yield _required(f"metadata.ownerReferences[{index}].{field}")
    for index, name in enumerate(_list(meta.get("finalizers"))):
        if not isinstance(name, str):
            yield _wrong(f"metadata.finalizers[{index}]", "a string")
    for field in ("ownerReferences", "finalizers"):
        if not isinstance(meta.get(field) or [], list):
            yield _wrong(f"metadata.{field}", "an array")


def _pod(spec: Any, path: str) -> Iterator[StatusCause]:
    for index, one in enumerate(_list(_at(spec, "containers"))):
        if not isinstance(_at(one, "image"), str):
            yield _required(f"{path}.containers[{index}].image")
    sources = (
        ("persistentVolumeClaim", "claimName"),
        ("secret", "secretName"),
        ("configMap", "name"),
    )
    for index, one in enumerate(_list(_at(spec, "volumes"))):
        for source, field in sources:
            stated = isinstance(one, dict) and source in one
            if stated and not isinstance(_at(one, f"{source}.{field}"), str):
                yield _required(f"{path}.volumes[{index}].{source}.{field}")


def _claims(templates: Any) -> Iterator[StatusCause]:
    for index, one in enumerate(_list(templates)):
        for field in ("metadata.name", f"spec.{_STORAGE}"):
            if not isinstance(_at(one, field), str):
                yield _required(f"spec.volumeClaimTemplates[{index}].{field}")


def _at(value: Any, path: str) -> Any:
    """Return the value of a field within an object, None if there is none."""
    for name in path.split("."):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []


def _required(field: str) -> StatusCause:
    return StatusCause(field=field, reason="FieldValueRequired", message="Required value")


def _wrong(field: str, wanted: str) -> StatusCause:
    text = f"Invalid value: must be {wanted}"
    return StatusCause(field=field, reason="FieldValueTypeInvalid", message=text)
