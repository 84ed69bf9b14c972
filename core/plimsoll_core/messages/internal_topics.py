"""A broker's request that a topic of the brokers' own be there.

Part of `messages`, which lists it among the requests.  Understood from metadata version 2 on: a
broker asks no controller that may be older.
"""

from __future__ import annotations

from plimsoll_core.messages.base import Message


class EnsureInternalTopic(Message, frozen=True, kw_only=True):
    """Answered with `TopicsAnswer`, whether the topic is made now or was there; idempotent."""

    name: str
    """One of `cluster.internal_topics`."""
