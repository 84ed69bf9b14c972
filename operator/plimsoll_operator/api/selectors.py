"""Evaluates Kubernetes' label selectors: pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from plimsoll_operator.api.cluster_topics import (
    AllowedNamespaces,
    LabelSelector,
    LabelSelectorRequirement,
)

# A label's key is an optional DNS name with a slash, and a name.  Source:
# apimachinery's `IsQualifiedName`, `IsValidLabelValue` and `ValidateLabelSelector`.
_PREFIX = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_WORD = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


def allows(allowed: AllowedNamespaces | None, namespace_labels: Mapping[str, str]) -> bool:
    """Return True if objects of a namespace with these labels may use the LogCluster, by its rule
    `allowed` (None: no other namespace may). Not called for the LogCluster's own namespace."""
    match (allowed.from_ if allowed else None) or "Same":
        case "All":
            return True
        case "Selector":
            selector = allowed.selector if allowed else None
            return selector is not None and matches(selector, namespace_labels)
        case _:
            return False


def matches(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Return True if `labels` satisfy every part of `selector`; an empty selector matches all."""
    for key, value in (selector.match_labels or {}).items():
        if labels.get(key) != value:
            return False
    return all(_satisfies(e, labels) for e in selector.match_expressions or ())


def _satisfies(expression: LabelSelectorRequirement, labels: Mapping[str, str]) -> bool:
    value = labels.get(expression.key)
    match expression.operator:
        case "In":
            return value is not None and value in (expression.values or ())
        case "NotIn":
            return value is None or value not in (expression.values or ())
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None


def is_label_key(key: str) -> bool:
    """Return True if `key` is a valid key of a label. Pass an annotation's key in lower case."""
    prefix, slash, name = key.rpartition("/")
    is_prefix = len(prefix) <= 253 and _PREFIX.fullmatch(prefix) is not None
    return (not slash or is_prefix) and _WORD.fullmatch(name) is not None


def is_label_value(value: str) -> bool:
    """Return True if `value` is a valid value of a label."""
    return not value or _WORD.fullmatch(value) is not None


def why_refused(selector: LabelSelector) -> str:
    """Return the message with which the API server would refuse the selector as invalid, or "" if
    it is valid."""
    return next(_mistakes(selector), "")


def _mistakes(selector: LabelSelector) -> Iterator[str]:
    expressions = selector.match_expressions or ()
    for key in (*(selector.match_labels or {}), *(one.key for one in expressions)):
        if not is_label_key(key):
            yield f"The selector's key {key!r} is not a valid label key."
    values = [*(selector.match_labels or {}).values()]
    for one in expressions:
        values += one.values or ()
        if (one.operator in ("In", "NotIn")) is not bool(one.values):
            needs = "has no values" if one.values else "needs values"
            yield f"The selector's operator {one.operator} for the label {one.key} {needs}."
    for value in values:
        if not is_label_value(value):
            yield f"The selector's value {value[:80]!r} is not a valid label value."
