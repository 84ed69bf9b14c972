"""Requests for restarts of brokers, and the controller's answers.

Part of `messages`, which lists them among the requests and answers.
"""

from __future__ import annotations

import msgspec

from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.base import Message


class RequestRestart(Message, frozen=True, kw_only=True):
    """May this pod of a broker be replaced by one that runs `revision`?"""

    broker_id: BrokerId
    pod_uid: str | None = None
    revision: str = ""


class WithdrawRestart(Message, frozen=True, kw_only=True):
    """The pod that was granted a restart into `revision` stays as it is: it runs already what is
    wanted now, and its replacement has not begun."""

    broker_id: BrokerId
    pod_uid: str
    revision: str


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that an action waits for.  `until` ends a sentence that begins with "until";
    `topic` and `index` where a partition is the cause."""

    reason: str
    until: str
    topic: str | None = None
    index: int | None = None


class RestartAnswer(Message, frozen=True, kw_only=True):
    """Granted, now or before; or what it waits for, the worst first, of `total` such things."""

    granted: bool
    total: int = 0
    waits: tuple[Waits, ...] = ()
