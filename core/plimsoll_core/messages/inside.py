"""The operator's requests about certificates inside.  Part of `messages`, which lists them."""

from __future__ import annotations

from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.base import Message
from plimsoll_core.security.inside import InsideMode


class SetInsideMode(Message, frozen=True, kw_only=True):
    """The next step on the way to the mode that a LogCluster states."""

    mode: InsideMode


class AllowCertificates(Message, frozen=True, kw_only=True):
    """All that a broker may show from now on, the newest first; none: it is gone."""

    broker_id: BrokerId
    sha256: tuple[str, ...]


InsideRequest = SetInsideMode | AllowCertificates
