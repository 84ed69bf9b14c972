"""Compiles the label and field selectors of a request into tests of objects.

Source: Kubernetes' "Labels and Selectors" (equality, sets, existence) and "Field Selectors".
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Mapping

from plimsoll_operator.api_server.status_errors import bad_request
from plimsoll_operator.kube.kube_api import Object

LabelTest = Callable[[Mapping[str, str]], bool]
FieldTest = Callable[[Object], bool]

_SET = re.compile(r"^(\S+)\s+(in|notin)\s+\(([^)]*)\)$")
_OUTSIDE_PARENTHESES = re.compile(r",(?![^(]*\))")


def _always(_: Mapping[str, str]) -> bool:
    return True


@functools.lru_cache(maxsize=1_000)
def label_test(selector: str) -> LabelTest:
    """Return a function that returns True if an object's labels match `selector`; with an empty
    selector it always does. Raises StatusError if `selector` cannot be parsed."""
    tests = [_requirement(part.strip()) for part in _OUTSIDE_PARENTHESES.split(selector) if part]
    if not tests:
        return _always
    if len(tests) == 1:
        return tests[0]
    return lambda labels: all(test(labels) for test in tests)


def _requirement(part: str) -> LabelTest:
    if found := _SET.match(part):
        key, verb, listed = found.groups()
        values = frozenset(value.strip() for value in listed.split(","))
        if verb == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if part.startswith("!"):
        return lambda labels: part[1:].strip() not in labels
    for sign in ("!=", "==", "="):
        key, found_sign, value = (text.strip() for text in part.partition(sign))
        if found_sign and sign == "!=":
            return lambda labels: labels.get(key) != value
        if found_sign:
            return lambda labels: labels.get(key) == value
    if not part or " " in part:
        raise bad_request(f"unable to parse requirement: {part!r}")
    return lambda labels: part in labels


@functools.lru_cache(maxsize=1_000)
def field_test(selector: str, selectable: frozenset[str]) -> FieldTest:
    """Return a function that returns True if an object's body matches the field selector. Raises
    StatusError if `selector` cannot be parsed, or names a field that is not in `selectable`."""
    tests = [_field_requirement(part, selectable) for part in selector.split(",") if part]
    return lambda body: all(test(body) for test in tests)


def _field_requirement(part: str, selectable: frozenset[str]) -> FieldTest:
    sign = next((sign for sign in ("!=", "==", "=") if sign in part), None)
    if sign is None:
        raise bad_request(f"invalid field selector: {part!r}")
    path, _, wanted = part.partition(sign)
    if path not in selectable:
        raise bad_request(f"field label not supported: {path}")
    names = path.split(".")
    return lambda body: (_text(body, names) == wanted) is (sign != "!=")


def _text(body: Object, names: list[str]) -> str:
    """Return the text of the field at the path `names`; "" if it is absent."""
    found: object = body
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    if isinstance(found, bool):
        return str(found).lower()
    return "" if found is None else str(found)
