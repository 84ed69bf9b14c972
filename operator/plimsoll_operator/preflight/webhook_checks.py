"""Finds admission webhooks that could stop the operator or its brokers by not answering.

A webhook with failurePolicy Fail that intercepts Leases or the metadata log leaves a cluster
without a controller while the webhook is down. Conditions (`matchConditions`) and object selectors
are not evaluated: such a webhook may intercept the request, and is named. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from plimsoll_operator.api.selectors import matches
from plimsoll_operator.preflight.facts import NotRead, Verdict, Webhook, WebhookRule, Webhooks
from plimsoll_operator.preflight.rights import RIGHTS
from plimsoll_operator.preflight.unread_facts import unread

WEBHOOKS = "webhooks"
OPERATIONS = {"create": "CREATE", "update": "UPDATE", "patch": "UPDATE", "delete": "DELETE"}
NAMESPACES_NAMED_MAX = 3
BY_OTHERS = {("", "pods"): {"CREATE"}, ("", "persistentvolumeclaims"): {"CREATE"}}
"""Writes of Kubernetes' own controllers for brokers and drivers."""


def webhooks(found: Webhooks | NotRead) -> Verdict:
    if isinstance(found, NotRead):
        return unread(WEBHOOKS, found)
    named = [text for one in found.failing if (text := _text(one, found.namespaces))]
    if not named:
        text = "No admission webhook with failurePolicy Fail covers objects that Plimsoll writes."
        return Verdict(check=WEBHOOKS, result="ok", message=text)
    text = (
        f"{'; '.join(named)}. While such a webhook is down these writes fail, and a cluster "
        "that cannot renew its Lease has no controller. Exclude the namespaces with the "
        "webhook's namespaceSelector, or set its failurePolicy to Ignore."
    )
    return Verdict(check=WEBHOOKS, result="warning", message=text)


def _text(webhook: Webhook, namespaces: Mapping[str, Mapping[str, str]]) -> str:
    """Return the requests that the webhook intercepts and where; empty if none concerns the
    product."""
    where = [name for name in sorted(namespaces) if matches(webhook.namespaces, namespaces[name])]
    plurals = sorted(set(_written(webhook.rules)))
    if not plurals or (namespaces and not where):
        return ""
    more = len(where) - NAMESPACES_NAMED_MAX
    told = ", ".join(where[:NAMESPACES_NAMED_MAX]) + (f" and {more} more" if more > 0 else "")
    in_them = f" in {told}" if where else ""
    return f"{webhook.configuration} ({webhook.name}): {', '.join(plurals)}{in_them}"


def _written(rules: tuple[WebhookRule, ...]) -> Iterator[str]:
    for (group, resource), operations in writes().items():
        if any(_stands_before(rule, group, resource, operations) for rule in rules):
            yield resource


def writes() -> dict[tuple[str, str], set[str]]:
    """Return operations by group and resource: the operator's writes, and those of controllers for
    its objects."""
    found = {key: set(operations) for key, operations in BY_OTHERS.items()}
    for right in RIGHTS:
        operations = {OPERATIONS[verb] for verb in right.verbs if verb in OPERATIONS}
        for resource in right.resources if operations else ():
            found.setdefault((right.group, resource), set()).update(operations)
    return found


def _stands_before(rule: WebhookRule, group: str, resource: str, operations: set[str]) -> bool:
    return (
        rule.scope != "Cluster"
        and ("*" in rule.groups or group in rule.groups)
        and ("*" in rule.operations or not operations.isdisjoint(rule.operations))
        and any(_is_meant(pattern, resource) for pattern in rule.resources)
    )


def _is_meant(pattern: str, resource: str) -> bool:
    """Match as `rules[].resources` of a webhook: `*` has no subresources, `*/*` is everything,
    `pods/*` is pods and all their subresources, `*/status` every status."""
    if pattern == "*/*":
        return True
    if pattern == "*":
        return "/" not in resource
    plural, _, subresource = resource.partition("/")
    first, slash, second = pattern.partition("/")
    if not slash:
        return first == resource
    return first in ("*", plural) and (second == "*" or bool(second and second == subresource))
