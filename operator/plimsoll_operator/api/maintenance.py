"""The part of `LogCluster` about what is done to brokers on purpose."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta

from plimsoll_operator.api.meta import Api

ExposedTopics = Literal["Interrupt", "Block"]


class Maintenance(Api, frozen=True, kw_only=True):
    """What may be done to brokers on purpose.  Elections and repairs never pause."""

    suspended: (
        Annotated[
            bool,
            Meta(description="true: no restart begins; what has begun is finished. Default false."),
        ]
        | None
    ) = None
    allow_drills: (
        Annotated[
            bool,
            Meta(
                description=(
                    "true: the containers of a broker's pod see each other's processes, so that a "
                    "drill can kill the broker from beside. A user who may open a debug container "
                    "there reads the broker's memory. Default false."
                )
            ),
        ]
        | None
    ) = None
    exposed_topics: (
        Annotated[
            ExposedTopics,
            Meta(
                description=(
                    "Partitions with no more replicas than their min ISR can spare no broker. "
                    "Interrupt (default): a restart interrupts them for a moment, while all their "
                    "replicas are in sync. Block: restarts wait until there are none of them. "
                    "status.exposure counts such topics."
                ),
            ),
        ]
        | None
    ) = None
