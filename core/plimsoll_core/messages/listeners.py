"""The operator's request about listeners.  Part of `messages`, which lists it."""

from __future__ import annotations

from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.messages.base import Message


class DeclareListeners(Message, frozen=True, kw_only=True):
    """All listeners that a LogCluster states; none: the one of the brokers' configuration."""

    listeners: tuple[Listener, ...]
