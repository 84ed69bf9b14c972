"""The fields of `LogCluster` about the brokers' log lines, and about scraping their metrics."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from plimsoll_operator.api.meta import Api, Labels, described


class Logging(Api, frozen=True, kw_only=True):
    """Level and format of the brokers' log lines. A change applies from a broker's next heartbeat,
    without a restart."""

    level: Annotated[
        Literal["Debug", "Info", "Warning", "Error"] | None,
        described("The least severe level that brokers log; default Info."),
    ] = None
    format: Annotated[
        Literal["Text", "Json"] | None,
        described(
            "Text (default), or Json: one object a line. A broker writes Text until its "
            "first heartbeat is answered."
        ),
    ] = None


class PodMonitor(Api, frozen=True, kw_only=True):
    """If set, even to {}, the operator makes a PodMonitor, by which Prometheus finds the brokers'
    metrics."""

    labels: Annotated[
        Labels | None, described("Labels of the PodMonitor, by which a Prometheus selects it.")
    ] = None
    interval: Annotated[
        Annotated[str, Meta(max_length=16, pattern=r"^([1-9][0-9]*(ms|s|m|h))+$")] | None,
        described("Interval of scrapes; default 30s."),
    ] = None
