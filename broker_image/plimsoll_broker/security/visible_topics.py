"""VisibleTopics: the topics that one principal may describe, and its rewritten requests for all
topics.

Kept by `Authority` while rules and topics stay the same. A request for all topics is answered as if
it had named the visible ones (`guards.metadata`). Encoding some hundred names takes longer than the
rest of a cached reply, so the rewritten requests are cached, too.
"""

from __future__ import annotations

from collections.abc import Callable

from plimsoll_broker.server.dispatch import Buffer
from plimsoll_core.security.state import Security

PRINCIPALS_MAX = 64
"""Principals whose visible topics are cached."""
ASKED_MAX = 2
"""Requests for all topics that are cached for each principal: clients of one kind send the same."""
ASKED_BYTES_MAX = 64
"""Bytes of a request for all topics, which names none."""
REWRITTEN_BYTES_MAX = 256 * 1024
"""Bytes of its rewritten form."""


class VisibleTopics:
    """The visible topics of one principal, and the rules and topics they were derived from. `names`
    None: all topics."""

    __slots__ = ("_requests", "names", "security", "topic_ids")

    def __init__(
        self, topic_ids: object, security: Security, names: tuple[str, ...] | None
    ) -> None:
        self.topic_ids = topic_ids
        self.security = security
        self.names = names
        # By API, version and original body; None: the request is passed on unchanged.
        self._requests: dict[tuple[int, int, bytes], bytes | None] = {}

    def has_asked(self, key: int, version: int, body: Buffer) -> bool:
        """Return True if `request` has the answer cached."""
        return len(body) <= ASKED_BYTES_MAX and (key, version, bytes(body)) in self._requests

    def request(
        self, key: int, version: int, body: Buffer, make: Callable[[], bytes | None]
    ) -> bytes | None:
        """Return the rewritten form of a request for all topics, or None if it is passed on
        unchanged."""
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
    """The cached topics of all principals."""

    def __init__(self) -> None:
        # By principal and host.
        self._known: dict[tuple[str, str], VisibleTopics] = {}

    def get(
        self, principal: str, host: str, topic_ids: object, security: Security
    ) -> VisibleTopics | None:
        """Return the cached topics, or None if rules or topics have changed."""
        found = self._known.get((principal, host))
        if found is None or found.topic_ids is not topic_ids:
            return None
        return found if found.security is security else None

    def put(self, principal: str, host: str, visible: VisibleTopics) -> None:
        if len(self._known) >= PRINCIPALS_MAX:
            self._known.clear()
        self._known[principal, host] = visible
