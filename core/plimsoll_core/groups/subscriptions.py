"""Which topics the members of a group are subscribed to: their offsets are neither deleted nor
expire.

Called by `offsets.delete` and `offsets.expire`.  Only the consumer protocol's subscriptions can be
read, all of which begin with their topics; where one cannot, or they are too many to be gone
through, every topic counts as subscribed.  Source: Kafka's `ClassicGroup.computeSubscribedTopics`,
KIP-496; docs/protocol.md §5.8.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable

from plimsoll_core.groups.members import ClassicGroup, Empty, Preparing
from plimsoll_core.groups.records import GroupStored

CONSUMER = "consumer"
"""The protocol type whose subscriptions are known."""
NAMES_MAX = 20_000
"""Topics in all subscriptions of a group together: gone through in a few milliseconds."""

_HEAD = struct.Struct(">hi")
_LENGTH = struct.Struct(">h")


def subscribed_topics(
    group: ClassicGroup | None, stored: GroupStored | None
) -> frozenset[str] | None:
    """None: all.  While members join again, also what they had before: they may still consume
    it."""
    if group is None or isinstance(group.phase, Empty):
        return frozenset()
    if group.protocol_type != CONSUMER or group.protocol is None:
        return None
    subscriptions = [one.subscription(group.protocol) for one in group.members.values()]
    if isinstance(group.phase, Preparing) and stored is not None:
        subscriptions += [one.subscription for one in stored.members]
    return _topics(subscriptions)


def _topics(subscriptions: Iterable[bytes]) -> frozenset[str] | None:
    names: set[bytes] = set()
    gone_through = 0
    last = b""
    for subscription in subscriptions:
        if last and subscription.startswith(last):
            continue  # members of one application say the same
        found = _names(subscription, NAMES_MAX - gone_through)
        if found is None:
            return None
        some, end = found
        names.update(some)
        gone_through += len(some)
        last = subscription[:end]
    try:
        return frozenset(str(name, "utf-8") for name in names)
    except UnicodeDecodeError:
        return None


def _names(subscription: bytes, at_most: int) -> tuple[list[bytes], int] | None:
    """The topics' names, and where they end; None: this is no subscription, or a longer one."""
    if len(subscription) < _HEAD.size:
        return None
    _, count = _HEAD.unpack_from(subscription)
    if not 0 <= count <= min(at_most, len(subscription) // _LENGTH.size):
        return None
    names: list[bytes] = []
    position = _HEAD.size
    for _ in range(count):
        start = position + _LENGTH.size
        if start > len(subscription):
            return None
        (length,) = _LENGTH.unpack_from(subscription, position)
        position = start + length
        if length < 0 or position > len(subscription):
            return None
        names.append(subscription[start:position])
    return names, position
