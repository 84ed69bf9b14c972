"""The part of `LogCluster` about maintenance of brokers: `spec.maintenance`."""

from __future__ import annotations

from typing import Annotated, Literal

from plimsoll_operator.api.meta import Api, described

ExposedTopics = Literal["Interrupt", "Block"]


class Maintenance(Api, frozen=True, kw_only=True):
    """Restarts of brokers and drills. Elections and repairs never pause."""

    suspended: Annotated[
        bool | None,
        described("true: no restart begins; restarts that have begun finish. Default false."),
    ] = None
    allow_drills: Annotated[
        bool | None,
        described(
            "true: Verifications may inject faults (spec.drill), and the containers of a broker's "
            "pod share one process namespace, so that a drill can kill the broker from a debug "
            "container. A user who may open a debug container there can read the broker's memory. "
            "A change restarts all brokers, by the rules of a roll. Default false."
        ),
    ] = None
    exposed_topics: Annotated[
        ExposedTopics | None,
        described(
            "Restarts of brokers with exposed topics: those that have no more replicas "
            "than their min ISR (status.exposure counts them). Interrupt (default): a "
            "restart interrupts them briefly, and only while all their replicas are in "
            "sync. Block: restarts wait until no such topic exists."
        ),
    ] = None
