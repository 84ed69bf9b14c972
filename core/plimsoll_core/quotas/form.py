"""Checks quotas: their entities, keys and values.

Called by the controller for requests of clients and objects. Source: KIP-546, KIP-612; Kafka's
`ClientQuotaControlManager`. Stricter than Kafka: names have a bounded length, values are finite,
and an address must be numeric: names are not resolved."""

from __future__ import annotations

import ipaddress
import math

from plimsoll_core.quotas.state import DEFAULT, OF_CLIENTS, Quota, QuotaEntity, QuotaValues

NAME_MAX = 255
"""Bound on the characters of a user's name or a client id."""
_WHOLE_MAX = {
    Quota.PRODUCER_BYTE_RATE: 2**63 - 1,
    Quota.CONSUMER_BYTE_RATE: 2**63 - 1,
    Quota.CONNECTION_CREATION_RATE: 2**31 - 1,
}
"""Largest values of the keys that Kafka stores as whole numbers."""
_LEAST = 1e-9
"""Least value, so that throttle times are finite."""
_FRACTION = 1e-6


def malformed_entity(entity: QuotaEntity) -> str:
    """Return a sentence on why a quota for this entity is not allowed, or "" if it is."""
    of_client = entity.user is not None or entity.client_id is not None
    if entity.ip is None:
        if not of_client:
            return "Invalid empty client quota entity."
        names = (entity.user, entity.client_id)
        if any(name is not None and len(name) > NAME_MAX for name in names):
            return f"A name has {NAME_MAX} characters at most."
        return ""
    if of_client:
        return "An IP entity cannot be combined with a user or a client id."
    if entity.ip != DEFAULT and address(entity.ip) is None:
        return f"{entity.ip[:100]!r} is not an IP address."
    return ""


def malformed_value(entity: QuotaEntity, key: str, value: float | None) -> str:
    """Return a sentence on why the value is not allowed for the quota key, or "". `value`: None
    removes the key."""
    known = {Quota.CONNECTION_CREATION_RATE} if entity.ip is not None else set(OF_CLIENTS)
    quota = next((one for one in known if one.value == key), None)
    if quota is None:
        names = ", ".join(sorted(one.value for one in known))
        return f"Invalid configuration key {key[:100]!r}; known here are {names}."
    if value is None:
        return ""
    if not math.isfinite(value) or value < _LEAST:
        return f"Quota {key} must be greater than 0."
    most = _WHOLE_MAX.get(quota)
    if most is not None and value > most:
        return f"Quota {key} is {most} at most."
    if most is not None and abs(value % 1.0) > _FRACTION:
        return f"{key} cannot be a fractional value."
    return ""


def malformed_values(entity: QuotaEntity, values: QuotaValues) -> str:
    """Return the sentence about the first value that is not allowed, or ""."""
    found = (malformed_value(entity, key, value) for key, value in values.items())
    return next((text for text in found if text), "")


def address(text: str) -> str | None:
    """Return an IP address in the form under which its connections are counted, or None if the text
    is not an IP address."""
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(found)
