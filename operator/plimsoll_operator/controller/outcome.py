"""The controller's run options, and the reasons for the end of a run."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum

from plimsoll_operator.metalog.interface import OpenedLog


class Outcome(Enum):
    """Reason why `run` returned."""

    STOPPED = "stopped"
    DEPOSED = "another controller wrote to the metadata log"
    HANDED_OVER = (
        "half of the brokers went silent at once; another operator takes over to confirm it"
    )
    STALLED = "the metadata log went back in time"
    TOO_NEW = "a newer release has written to the metadata log"


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerOptions:
    """Differences between Kubernetes and local mode."""

    always_confirmed: bool = False
    """This process locks the log: no other can commit."""
    confirmed_ms: int = 3_000
    tick_ms: int = 500
    backoff_ms: int = 100
    backoff_ms_max: int = 5_000
    claim_ms: int = 60_000
    """How long an absent broker is still believed to hold more than the log. Later the controller
    waits `listen_ms` for its report before anything is committed."""
    listen_ms: int = 10_000
    on_open: Callable[[OpenedLog], None] | None = None
    """Called with the log each time it was read, before the term's first commit."""
    topic_id_key: bytes = field(default=b"", repr=False)
    """Random key of the process; if empty, topic ids are predictable, as in simulations."""
    waited_ms: Callable[[], int] = lambda: 0
    """Total time for which this process was runnable without a processor. It does not count as a
    broker's silence: requests sent in it may still be unread."""
    opinion_ms: int = 60_000
    """How long a hand-over is remembered. Longer than the pause in which another operator may lead;
    older observations mean nothing for brokers that fall silent much later."""
