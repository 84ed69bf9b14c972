"""The options of one cluster's controller, which differ between Kubernetes, local mode and tests.

Made by the operator's leadership and by `plimsoll local`; read by the controller alone.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from plimsoll_core.ids import BrokerId
from plimsoll_operator.controller.metadata_restoration import (
    ReadBackup,
    RestorationOptions,
    no_backup,
)
from plimsoll_operator.metalog.interface import OpenedLog

WAITS = RestorationOptions()
EMPTY_LOG = RestorationOptions(quiet_ms=120_000, all_ms=120_000)
"""How long copies are awaited if the log is empty: no broker may run yet."""


async def _expects_none() -> frozenset[BrokerId]:
    return frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerOptions:
    """Options of a controller that differ between Kubernetes, local mode and tests. Durations are
    in milliseconds."""

    always_confirmed: bool = False
    """True if this process holds a lock on the metadata log, so that no other can commit to it."""
    confirmed_ms: int = 3_000
    tick_ms: int = 500
    backoff_ms: int = 100
    backoff_ms_max: int = 5_000
    claim_ms: int = 60_000
    """For how many milliseconds a broker that no longer reports is believed to hold metadata that
    this log lacks. After that, the controller waits `listen_ms` for a report of the broker before
    it commits anything."""
    listen_ms: int = 10_000
    on_open: Callable[[OpenedLog], None] | None = None
    """Called with the log each time it was read, before the term's first commit."""
    topic_id_key: bytes = field(default=b"", repr=False)
    """Random key from which topic ids are made. If empty, topic ids are predictable, as in
    simulations."""
    waited_ms: Callable[[], int] = lambda: 0
    """Function that returns for how many milliseconds in total this process was ready to run but
    had no processor. This time does not count as a broker's silence: requests that arrived
    meanwhile may still be unread."""
    restoration: RestorationOptions = WAITS
    """How long brokers' copies are awaited if the metadata log lost records."""
    empty_log: RestorationOptions = EMPTY_LOG
    restore_choice: Callable[[], str] = lambda: ""
    """Function that returns the history that a person has confirmed to restore (`Restore.choice`),
    or an empty string."""
    expects_copies: Callable[[], Awaitable[frozenset[BrokerId]]] = _expects_none
    """Function that returns the brokers with volumes of this cluster. If there are any, an empty
    metadata log lost its records: it is restored from their copies before anything is committed."""
    read_backup: ReadBackup = no_backup
    """Function that reads the cluster's backup, up to the point that a person asks for."""
    point_asked: Callable[[], bool] = lambda: False
    """Function that returns True if a person asks for a point of the backup. Otherwise the backup
    is not read while brokers' copies will do."""
    backup_asked: Callable[[], bool] = lambda: False
    """Function that returns True if an empty metadata log is not begun while there may be a backup:
    a person asks for one of its points, or states the id of a former cluster."""
    on_restoring: Callable[[str], None] = lambda _: None
    """Called when the controller begins to restore its log from brokers' copies, with the reason
    for people."""
    opinion_ms: int = 60_000
    """For how many milliseconds this controller remembers that it handed over because many brokers
    fell silent at once. The time is longer than the pause in which another operator may lead. An
    older observation says nothing about brokers that fall silent much later."""
