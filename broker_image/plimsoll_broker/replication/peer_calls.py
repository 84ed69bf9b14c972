"""PeerCalls: requests to another broker over one connection, one after another.

Used by the tasks that ask other brokers something of the coordinators: log ends, markers, whether a
partition belongs to a transaction. It decides nothing.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from plimsoll_broker.replication.peer_connection import PeerConnection, PeerLost
from plimsoll_wire.api_versions import ApiKey, is_flexible
from plimsoll_wire.encoding import Values
from plimsoll_wire.headers import request_frame
from plimsoll_wire.messages import decode_response, encode_request

_CORRELATION_BYTES = 4


class PeerCalls:
    """Sends requests over a connection under the name `client_id`. `silence_s`: the time in seconds
    for which the peer may send nothing."""

    def __init__(self, connection: PeerConnection, client_id: str, silence_s: float) -> None:
        self._connection = connection
        self._client_id = client_id
        self._silence_s = silence_s
        self._numbers = count(1)

    async def ask(self, key: ApiKey, version: int, values: Values) -> Any:
        """Send a request and return the decoded reply. Raise PeerLost or MalformedMessage."""
        body = encode_request(key, version, values)
        number = next(self._numbers) & 0x7FFFFFFF
        frame = request_frame(key, version, number, self._client_id, body)
        reply = bytes(await self._connection.request(frame, self._silence_s))
        if int.from_bytes(reply[:_CORRELATION_BYTES]) != number:
            raise PeerLost(
                "the other broker's reply belongs to another request, so the connection is closed"
            )
        return decode_response(key, version, reply[_header_bytes(key, version) :])

    @property
    def is_lost(self) -> bool:
        """True if the connection is known to be lost."""
        return self._connection.lost_for_ms is not None

    def close(self) -> None:
        self._connection.close()


def _header_bytes(key: ApiKey, version: int) -> int:
    """Return the size of a reply's header: one of a flexible version ends with an empty list of
    tagged fields."""
    return _CORRELATION_BYTES + is_flexible(key, version)
