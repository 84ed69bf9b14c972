"""Kubernetes' label selectors, evaluated here: pure."""

from __future__ import annotations

from collections.abc import Mapping

from plimsoll_operator.api.cluster_topics import (
    AllowedNamespaces,
    LabelSelector,
    LabelSelectorRequirement,
)


def allows(allowed: AllowedNamespaces | None, namespace_labels: Mapping[str, str]) -> bool:
    """Whether another namespace than the LogCluster's own, with these labels, is among those that
    are allowed."""
    match (allowed.from_ if allowed else None) or "Same":
        case "All":
            return True
        case "Selector":
            selector = allowed.selector if allowed else None
            return selector is not None and matches(selector, namespace_labels)
        case _:
            return False


def matches(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Whether `labels` satisfy every part of `selector`; an empty selector takes all."""
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
