"""Checks quotas: their entities, keys and values.

Called by the controller for requests of clients and objects. Source: KIP-546, KIP-612; Kafka's
`ClientQuotaControlManager`. Stricter than Kafka: names have a bounded length, values are finite,
and an address must be numeric, since names are not resolved.
"""

from __future__ import annotations

import ipaddress
import math

from plimsoll_core.quotas.state import DEFAULT, OF_CLIENTS, Quota, QuotaEntity, QuotaValues

NAME_MAX = 255
"""The most characters of a user's name or a client id."""
_WHOLE_MAX = {
    Quota.PRODUCER_BYTE_RATE: 2**63 - 1,
    Quota.CONSUMER_BYTE_RATE: 2**63 - 1,
    Quota.CONNECTION_CREATION_RATE: 2**31 - 1,
}
"""The largest values of the keys that Kafka stores as whole numbers."""
_LEAST = 1e-9
"""The least value of a quota, so that throttle times are finite."""
_FRACTION = 1e-6


def malformed_entity(entity: QuotaEntity) -> str:
    """Return a sentence that says why a quota for this entity is not allowed, or an empty string if
    it is."""
    of_client = entity.user is not None or entity.client_id is not None
    if entity.ip is None:
        if not of_client:
            return "Invalid empty client quota entity."
        names = (entity.user, entity.client_id)
        if any(name is not None and len(name) > NAME_MAX for name in names):
            return f"The user name or client id of a quota may have at most {NAME_MAX} characters."
        return ""
    if of_client:
        return "A quota of an IP address cannot be combined with a user or a client id."
    if entity.ip != DEFAULT and address(entity.ip) is None:
        return f"The quota's entity {entity.ip[:100]!r} is not an IP address."
    return ""


def malformed_value(entity: QuotaEntity, key: str, value: float | None) -> str:
    """Return a sentence that says why the value is not allowed for the quota key, or an empty
    string if it is. `value`: None removes the key."""
    known = {Quota.CONNECTION_CREATION_RATE} if entity.ip is not None else set(OF_CLIENTS)
    quota = next((one for one in known if one.value == key), None)
    if quota is None:
        names = ", ".join(sorted(one.value for one in known))
        return f"Invalid configuration key {key[:100]!r}; the quota keys are {names}."
    if value is None:
        return ""
    if not math.isfinite(value) or value < _LEAST:
        return f"Quota {key} must be greater than 0."
    most = _WHOLE_MAX.get(quota)
    if most is not None and value > most:
        return f"Quota {key} may be at most {most}."
    if most is not None and abs(value % 1.0) > _FRACTION:
        return f"Quota {key} must be a whole number."
    return ""


def malformed_values(entity: QuotaEntity, values: QuotaValues) -> str:
    """Return a sentence about the first value that is not allowed, or an empty string if all
    are."""
    found = (malformed_value(entity, key, value) for key, value in values.items())
    return next((text for text in found if text), "")


def address(text: str) -> str | None:
    """Return an IP address in the form by which its limits are looked up: without a zone, and an
    IPv4 address that is mapped into IPv6 as IPv4. Return None if the text is not an IP address."""
    try:
        found = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
        return str(found.ipv4_mapped)
    return str(found)
