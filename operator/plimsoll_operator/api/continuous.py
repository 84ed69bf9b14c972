"""The state of a continuous Verification: its windows and their verdicts."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from plimsoll_operator.api.meta import Api, Count, Short, Time, described

WINDOW_DEFAULT = "1m"
MESSAGE_MAX = 1024
RECENT_MAX = 10


class Example(Api, frozen=True, kw_only=True):
    """One record that failed a check."""

    topic: Short = ""
    partition: int = 0
    offset: int = 0
    kind: Short = ""
    key: Short | None = None
    producer: Count | None = None
    sequence: Count | None = None
    last_offset: Annotated[int | None, described("The end of the range, in an audit.")] = None
    brokers: Annotated[
        tuple[int, ...],
        Meta(max_length=100, description="Brokers with a replica that has the fault."),
    ] = ()
    valid_brokers: Annotated[
        tuple[int, ...],
        Meta(max_length=100, description="Brokers with valid batches there, in an audit."),
    ] = ()
    leader: Annotated[int | None, described("The broker that led, in an audit.")] = None
    detail: Short = ""


class Window(Api, frozen=True, kw_only=True):
    """The verdict of one window."""

    start: Time | None = None
    end: Time | None = None
    verdict: Literal["", "Passed", "Violated", "Inconclusive"] = ""
    reason: Short = ""
    message: Annotated[str, Meta(max_length=MESSAGE_MAX)] = ""


class EndedWindow(Api, omit_defaults=False, frozen=True, kw_only=True):
    """One ended window, in a few figures."""

    start: Time | None = None
    end: Time | None = None
    verdict: Literal["", "Passed", "Violated", "Inconclusive"] = ""
    reason: Short = ""
    acked: Annotated[int, Meta(ge=0, description="Acknowledgements that were judged in it.")] = 0
    records_per_second: float = 0
    p99_milliseconds: Annotated[float | None, described("Of ack latency.")] = None


class Continuous(Api, omit_defaults=False, frozen=True, kw_only=True):
    """The windows of a continuous run. The verdict of the status is Violated from a violated window
    on, until it is acknowledged; else that of the newest window."""

    window_seconds: Count = 0
    since: Time | None = None
    drivers: Annotated[int, Meta(ge=0, description="How many drivers have worked on it.")] = 0
    passed: Annotated[int, Meta(ge=0, description="Number of windows.")] = 0
    violated: Count = 0
    inconclusive: Count = 0
    waiting: Annotated[
        int, Meta(ge=0, description="Acknowledged records that are not judged yet.")
    ] = 0
    behind: Annotated[int, Meta(ge=0, description="Records of the log that are not read yet.")] = 0
    recent: Annotated[
        tuple[EndedWindow, ...],
        Meta(max_length=RECENT_MAX, description="The last windows that ended, the newest first."),
    ] = ()
    window: Annotated[Window | None, described("The newest window with a verdict.")] = None
    last_violation: Window | None = None
    acknowledged: Annotated[
        Time | None,
        described("Violations until then are acknowledged; unset: there is none, or it is not."),
    ] = None
    last_loss: Example | None = None
    last_loss_time: Time | None = None
