"""Rules for the spelling of names and keys, checked whenever an object is stored. A host may
therefore use a stored name as part of a file's path.

Covers labels, annotations, names, the keys of ConfigMaps and Secrets, and the named parts of pods.
Pure. Called by `stored_object`, and by `local` for objects kept from an earlier run. Source:
apimachinery `pkg/util/validation`, kubernetes `pkg/apis/core/validation`, release 1.34.
"""

from __future__ import annotations

import base64
import binascii
import functools
import re
from collections.abc import Iterator, Mapping
from typing import Any

from plimsoll_operator.api.selectors import is_label_key, is_label_value
from plimsoll_operator.api_server.status_errors import StatusCause, bad_request
from plimsoll_operator.kube import resources
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.kube.resources import Kind

NAME_CHARS_MAX = 253
LABEL_CHARS_MAX = 63
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_KEY = re.compile(r"[-._a-zA-Z0-9]+")
_SUBDOMAIN_SENTENCE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character"
)
_LABEL_SENTENCE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character"
)
_KEY_SENTENCE = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.', and must not "
    "start with '..' or be '.'"
)
_LABELS = frozenset({resources.NAMESPACES, resources.SERVICES})
"""Kinds of which each object's name must be one DNS label, because it becomes a part of host
names."""


def is_key(key: str) -> bool:
    """Return True if `key` is valid in a ConfigMap or Secret: the name of a file, without a
    path."""
    spelt = len(key) <= NAME_CHARS_MAX and _KEY.fullmatch(key) is not None
    return spelt and key != "." and not key.startswith("..")


@functools.lru_cache(maxsize=1_000)
def is_name(name: str) -> bool:
    return len(name) <= NAME_CHARS_MAX and _NAME.fullmatch(name) is not None


def is_label(name: str) -> bool:
    """Return True if `name` is an RFC 1123 label: one part of a host name, without dots."""
    return len(name) <= LABEL_CHARS_MAX and _LABEL.fullmatch(name) is not None


def wrong_metadata(kind: Kind, meta: Object) -> Iterator[StatusCause]:
    """Yield an error for each invalid name, label or annotation key in `meta`. Raises StatusError
    for a name, label or annotation that is not a string."""
    name = meta["name"]
    single = kind in _LABELS
    if not isinstance(name, str):
        raise bad_request("metadata.name is not a string")
    if not (is_label(name) if single else is_name(name)):
        yield _invalid("metadata.name", name, _LABEL_SENTENCE if single else _SUBDOMAIN_SENTENCE)
    for field in ("labels", "annotations"):
        for key, value in _map(meta, "metadata", field):
            if not isinstance(value, str):
                raise bad_request(f"metadata.{field}[{key}] is not a string")
            if not _is_label_key(key if field == "labels" else key.lower()):
                yield _invalid(f"metadata.{field}", key, "a name part, and a DNS name before it")
            if field == "labels" and not _is_label_value(value):
                yield _invalid("metadata.labels", value, "a valid label has at most 63 characters")


def wrong_parts(kind: Kind, body: Object) -> Iterator[StatusCause]:
    """Yield an error for each misspelt data key, container name or volume name in an object of a
    built-in kind. Raises StatusError for a value of the wrong type, or for invalid base64."""
    if kind == resources.CONFIG_MAPS or kind == resources.SECRETS:
        yield from _wrong_keys(body, encoded=kind == resources.SECRETS)
    elif kind == resources.PODS:
        yield from _wrong_pod(body.get("spec"), "spec")
    elif kind == resources.JOBS or kind == resources.STATEFUL_SETS:
        template = (body.get("spec") or {}).get("template") or {}
        if "spec" in template:
            yield from _wrong_pod(template["spec"], "spec.template.spec")


def _wrong_keys(body: Object, *, encoded: bool) -> Iterator[StatusCause]:
    for field in ("data", "binaryData"):
        for key, value in _map(body, "", field):
            if not isinstance(value, str):
                raise bad_request(f"{field}[{key}] is not a string")
            if encoded or field == "binaryData":
                try:
                    base64.b64decode(value, validate=True)
                except (binascii.Error, ValueError) as error:
                    raise bad_request(f"{field}[{key}] is not base64: {error}") from error
            if not is_key(key):
                yield _invalid(f"{field}[{key}]", key, _KEY_SENTENCE)


def _wrong_pod(spec: Any, path: str) -> Iterator[StatusCause]:
    if not isinstance(spec, dict) or not spec.get("containers"):
        text = "Required value"
        yield StatusCause(field=f"{path}.containers", reason="FieldValueRequired", message=text)
        return
    for part in ("containers", "initContainers", "volumes"):
        for index, one in enumerate(spec.get(part) or ()):
            name = one.get("name") if isinstance(one, dict) else None
            if not isinstance(name, str) or not is_label(name):
                yield _invalid(f"{path}.{part}[{index}].name", str(name), _LABEL_SENTENCE)


def _map(body: Object, path: str, field: str) -> list[tuple[str, Any]]:
    found = body.get(field) or {}
    if not isinstance(found, Mapping):
        raise bad_request(f"{path}.{field} is not an object".lstrip("."))
    return list(found.items())


def _invalid(field: str, value: str, sentence: str) -> StatusCause:
    text = f'Invalid value: "{value}": {sentence}'
    return StatusCause(field=field, reason="FieldValueInvalid", message=text)


_is_label_key = functools.lru_cache(maxsize=1_000)(is_label_key)
_is_label_value = functools.lru_cache(maxsize=1_000)(is_label_value)
