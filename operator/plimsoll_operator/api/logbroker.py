"""`LogBroker` (plb): one broker of a LogCluster, as the controller and the broker itself report it.

The operator writes the whole object, including its spec. It makes the object with the broker and
deletes it with the broker."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from plimsoll_operator.api.meta import (
    Api,
    BrokerNumber,
    ClusterObject,
    Conditions,
    Count,
    LocalClusterRef,
    Quantity,
    Short,
    Time,
)

Sentence = Annotated[str, Meta(max_length=1024)]
BrokerState = Literal["NotRegistered", "Fenced", "Active", "ShuttingDown"]


class LogBrokerSpec(Api, frozen=True, kw_only=True):
    """The broker that this object shows."""

    cluster_ref: LocalClusterRef
    broker_id: BrokerNumber


class FencedStatus(Api, frozen=True, kw_only=True):
    """When and why the broker was fenced."""

    since: Time
    why: Sentence


class DiskStatus(Api, frozen=True, kw_only=True):
    """The file system of the broker's logs, as last reported by the broker."""

    used: Quantity
    free: Quantity


class BacklogStatus(Api, omit_defaults=False, frozen=True, kw_only=True):
    """Committed metadata that the broker has not yet applied to its logs: the number of records,
    and the age of the oldest in seconds."""

    records: Count = 0
    seconds: Count = 0


class LogBrokerStatus(Api, frozen=True, kw_only=True):
    """The observed state of the broker. `leaving`: the broker is being drained; `restarting`: the
    revision it restarts into; `lowestISRMargin`: the smallest |ISR| - min ISR of the partitions
    that have it in the ISR; at 0 some partition cannot spare it."""

    observed_generation: Count | None = None
    state: BrokerState | None = None
    fenced: FencedStatus | None = None
    leaving: bool | None = None
    restarting: Short | None = None
    pool: Short | None = None
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


class LogBroker(ClusterObject, frozen=True, kw_only=True):
    """A broker of a LogCluster. The operator writes this object."""

    spec: LogBrokerSpec
    status: dict[str, Any] = msgspec.field(default_factory=dict)
