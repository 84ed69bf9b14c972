"""Requests about brokers: members, removals, restarts, listeners, and mTLS inside a cluster."""

from __future__ import annotations

import msgspec

from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.ids import BrokerEpoch, BrokerId
from plimsoll_core.messages.base import Message
from plimsoll_core.security.inside import InsideMode


class SetLeaving(Message, frozen=True, kw_only=True):
    """Set the list of all brokers that are to be removed; they get no new replicas."""

    broker_ids: tuple[BrokerId, ...]


class SettleNewcomers(Message, frozen=True, kw_only=True):
    """Note that the operator has arranged or declined a rebalance for these new brokers, so that it
    need not be considered again."""

    broker_ids: tuple[BrokerId, ...]


class UnregisterBroker(Message, frozen=True, kw_only=True):
    """Remove a broker's registration for good; its id may be registered again.

    `pvc_uid`: the claim of its volume, if the volume is to be deleted too.
    """

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    pvc_uid: str | None = None


class VolumeGone(Message, frozen=True, kw_only=True):
    """Note that the claim of a removed broker's volume no longer exists."""

    pvc_uid: str


MembershipRequest = SetLeaving | SettleNewcomers | UnregisterBroker | VolumeGone


class RequestRestart(Message, frozen=True, kw_only=True):
    """Ask for permission to replace this pod of a broker by one of template revision `revision`."""

    broker_id: BrokerId
    pod_uid: str | None = None
    revision: str = ""


class WithdrawRestart(Message, frozen=True, kw_only=True):
    """Return a granted permission to restart a broker: its pod runs what is wanted already, and its
    replacement has not begun. `revision`: the one that permission was given for."""

    broker_id: BrokerId
    pod_uid: str
    revision: str


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """A condition that a restart waits for. `until`: completes a sentence that ends in "until".
    `topic` and `index` are set if a partition is the cause."""

    reason: str
    until: str
    topic: str | None = None
    index: int | None = None


class RestartAnswer(Message, frozen=True, kw_only=True):
    """Whether a restart is permitted, by this request or an earlier one. If not, `waits` has the
    worst of the `total` conditions that it waits for, the worst first."""

    granted: bool
    total: int = 0
    waits: tuple[Waits, ...] = ()


class DeclareListeners(Message, frozen=True, kw_only=True):
    """Declare all listeners of a LogCluster; empty: only the listener of the brokers'
    configuration."""

    listeners: tuple[Listener, ...]


class SetInsideMode(Message, frozen=True, kw_only=True):
    """Set the mode of connections between brokers and controllers, one step towards the one that
    the LogCluster states."""

    mode: InsideMode


class AllowCertificates(Message, frozen=True, kw_only=True):
    """Set the fingerprints of the certificates that a broker may present inside the cluster, newest
    first; empty if the broker is removed."""

    broker_id: BrokerId
    sha256: tuple[str, ...]


InsideRequest = SetInsideMode | AllowCertificates
