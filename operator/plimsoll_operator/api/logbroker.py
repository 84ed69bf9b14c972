"""`LogBroker` (plb): one broker of a LogCluster, as the controller and the broker itself see it.

The operator writes it, its spec included: it is made with a broker and goes with it.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from plimsoll_operator.api.meta import (
    Api,
    BrokerNumber,
    Conditions,
    Count,
    LocalClusterRef,
    ObjectMeta,
    Quantity,
    Short,
    Time,
)

Sentence = Annotated[str, Meta(max_length=1024)]
BrokerState = Literal["NotRegistered", "Fenced", "Active", "ShuttingDown"]


class LogBrokerSpec(Api, frozen=True, kw_only=True):
    """Which broker it is."""

    cluster_ref: LocalClusterRef
    broker_id: BrokerNumber


class FencedStatus(Api, frozen=True, kw_only=True):
    """Since when the broker takes no part, and why."""

    since: Time
    why: Sentence


class DiskStatus(Api, frozen=True, kw_only=True):
    """The file system of the broker's logs, as the broker saw it last."""

    used: Quantity
    free: Quantity


class BacklogStatus(Api, omit_defaults=False, frozen=True, kw_only=True):
    """Metadata that the broker has not carried out: so many records, the oldest committed so long
    ago."""

    records: Count = 0
    seconds: Count = 0


class LogBrokerStatus(Api, frozen=True, kw_only=True):
    """What the broker is.  `leaving`: it is being emptied; `restarting`: into this revision;
    `lowestISRMargin`: the smallest |ISR| - min ISR of the partitions in whose ISR it is, so that
    0 says that some cannot do without it."""

    observed_generation: Count | None = None
    state: BrokerState | None = None
    fenced: FencedStatus | None = None
    leaving: bool | None = None
    restarting: Short | None = None
    rack: Short | None = None
    node: Short | None = None
    revision: Short | None = None
    version: Short | None = None
    disk: DiskStatus | None = None
    leaders: Count | None = None
    replicas: Count | None = None
    in_sync: Count | None = None
    lowest_isr_margin: int | None = msgspec.field(name="lowestISRMargin", default=None)
    backlog: BacklogStatus | None = None
    conditions: Conditions = ()


class LogBroker(msgspec.Struct, frozen=True, kw_only=True):
    """The object; its status may be one that another release wrote."""

    metadata: ObjectMeta
    spec: LogBrokerSpec
    status: dict[str, Any] = {}

    @property
    def key(self) -> tuple[str, str]:
        return self.metadata.namespace, self.metadata.name

    @property
    def cluster_key(self) -> tuple[str, str]:
        """(namespace, name) of the LogCluster meant."""
        return self.metadata.namespace, self.spec.cluster_ref.name
