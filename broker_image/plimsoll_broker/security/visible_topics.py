"""The topics that one principal may describe, and the requests for all topics as it is answered.

Kept by `Authority` for as long as rules and topics are the same.  Whoever asks for all topics is
answered as if it had named those that it sees (`guards.metadata`); to encode some hundred names
takes longer than all else of an answer that is remembered, so such requests are remembered, too.
"""

from __future__ import annotations

from collections.abc import Callable

from plimsoll_broker.server.dispatch import Buffer
from plimsoll_core.security.state import Security

PRINCIPALS_MAX = 64
"""Whose visible topics are remembered."""
ASKED_MAX = 2
"""Requests for all topics that are remembered for each principal: clients of one kind ask alike."""
ASKED_BYTES_MAX = 64
"""Of a body that asks for all topics: it names none."""
REWRITTEN_BYTES_MAX = 256 * 1024
"""Of what is remembered in its place."""


class VisibleTopics:
    """What one principal sees, and of what that was found.  `names`: None: all there are."""

    __slots__ = ("_requests", "names", "security", "topic_ids")

    def __init__(
        self, topic_ids: object, security: Security, names: tuple[str, ...] | None
    ) -> None:
        self.topic_ids = topic_ids
        self.security = security
        self.names = names
        # By API, version and the body that came; None: it goes on as it came.
        self._requests: dict[tuple[int, int, bytes], bytes | None] = {}

    def has_asked(self, key: int, version: int, body: Buffer) -> bool:
        """Whether `request` has it."""
        return len(body) <= ASKED_BYTES_MAX and (key, version, bytes(body)) in self._requests

    def request(
        self, key: int, version: int, body: Buffer, make: Callable[[], bytes | None]
    ) -> bytes | None:
        """What goes on instead of a request for all topics; made once for each way of asking."""
        if len(body) > ASKED_BYTES_MAX:
            return make()
        question = (key, version, bytes(body))
        if question in self._requests:
            return self._requests[question]
        made = make()
        if len(self._requests) < ASKED_MAX and len(made or b"") <= REWRITTEN_BYTES_MAX:
            self._requests[question] = made
        return made


class VisibleOfPrincipals:
    """What is remembered, of all."""

    def __init__(self) -> None:
        # By principal and host.
        self._known: dict[tuple[str, str], VisibleTopics] = {}

    def get(
        self, principal: str, host: str, topic_ids: object, security: Security
    ) -> VisibleTopics | None:
        """None: rules or topics have changed since, or it is not remembered."""
        found = self._known.get((principal, host))
        if found is None or found.topic_ids is not topic_ids:
            return None
        return found if found.security is security else None

    def put(self, principal: str, host: str, visible: VisibleTopics) -> None:
        if len(self._known) >= PRINCIPALS_MAX:
            self._known.clear()
        self._known[principal, host] = visible
