"""The parts of `LogCluster` about the brokers' log lines and the scraping of their metrics."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from plimsoll_operator.api.meta import Api, Labels


class Logging(Api, frozen=True, kw_only=True):
    """How brokers write their own log lines, from their next heartbeat on: nothing restarts."""

    level: (
        Annotated[
            Literal["Debug", "Info", "Warning", "Error"],
            Meta(description="Default Info."),
        ]
        | None
    ) = None
    format: (
        Annotated[
            Literal["Text", "Json"],
            Meta(
                description=(
                    "Json: one object a line, with fields of its own. A broker writes Text (the "
                    "default) until its first heartbeat is answered."
                )
            ),
        ]
        | None
    ) = None


class PodMonitor(Api, frozen=True, kw_only=True):
    """How Prometheus scrapes the brokers; its presence asks for it."""

    labels: (
        Annotated[
            Labels,
            Meta(description="Labels by which a Prometheus selects its PodMonitors."),
        ]
        | None
    ) = None
    interval: (
        Annotated[
            str,
            Meta(
                max_length=16,
                pattern=r"^([1-9][0-9]*(ms|s|m|h))+$",
                description="How often brokers are scraped; default 30s.",
            ),
        ]
        | None
    ) = None
