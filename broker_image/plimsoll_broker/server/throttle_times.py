"""Write a throttle time into a reply that is already encoded.

Called by the sessions for replies to throttled clients. Produce's encoder takes the time itself,
since the field is not at the beginning of its response.
"""

from __future__ import annotations

import struct

from plimsoll_broker.server.client_quotas import Charges
from plimsoll_broker.server.dispatch import Buffer, Reply
from plimsoll_wire.messages import throttle_time_at

_I32 = struct.Struct(">i")


def told(reply: Reply, key: int, version: int, charges: Charges) -> Reply:
    """Return the reply with the throttle time of its request, if its version has the field."""
    if not charges.throttle_ms:
        return reply
    at = throttle_time_at(key, version)
    if at is None:
        return reply
    if isinstance(reply, list):
        reply[0] = _patched(reply[0], at, charges.throttle_ms)
        return reply
    if isinstance(reply, tuple):
        return (_patched(reply[0], at, charges.throttle_ms), *reply[1:])
    assert isinstance(reply, bytes | bytearray | memoryview), "in one piece or several"
    return _patched(reply, at, charges.throttle_ms)


def _patched(piece: Buffer, at: int, throttle_ms: int) -> bytes:
    changed = bytearray(piece)
    _I32.pack_into(changed, at, throttle_ms)
    return bytes(changed)
