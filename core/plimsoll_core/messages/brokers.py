"""Requests about brokers: members, removals, restarts, listeners, and mTLS inside a cluster."""

from __future__ import annotations

import msgspec

from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.ids import BrokerEpoch, BrokerId
from plimsoll_core.messages.base import Message
from plimsoll_core.security.inside import InsideMode


class SetLeaving(Message, frozen=True, kw_only=True):
    """Set all brokers that are leaving; they take no new replicas from now on."""

    broker_ids: tuple[BrokerId, ...]


class SettleNewcomers(Message, frozen=True, kw_only=True):
    """These members joined, and their rebalance was arranged or declined."""

    broker_ids: tuple[BrokerId, ...]


class UnregisterBroker(Message, frozen=True, kw_only=True):
    """A broker is gone for good: this lifetime of it was its last.  Its id may be used again.

    `pvc_uid`: the claim of its volume, when the volume is to be deleted too.
    """

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    pvc_uid: str | None = None


class VolumeGone(Message, frozen=True, kw_only=True):
    """The claim of a released volume does not exist any more."""

    pvc_uid: str


MembershipRequest = SetLeaving | SettleNewcomers | UnregisterBroker | VolumeGone


class RequestRestart(Message, frozen=True, kw_only=True):
    """Ask for permission to replace this pod of a broker by one that runs `revision`."""

    broker_id: BrokerId
    pod_uid: str | None = None
    revision: str = ""


class WithdrawRestart(Message, frozen=True, kw_only=True):
    """The pod that was granted a restart into `revision` stays as it is: it runs already what is
    wanted now, and its replacement has not begun."""

    broker_id: BrokerId
    pod_uid: str
    revision: str


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """One condition that an action waits for. `until` completes a sentence after "until"; `topic`
    and `index` are set if a partition is the cause."""

    reason: str
    until: str
    topic: str | None = None
    index: int | None = None


class RestartAnswer(Message, frozen=True, kw_only=True):
    """The restart is granted, now or before; else the conditions that it waits for, the worst
    first, of `total`."""

    granted: bool
    total: int = 0
    waits: tuple[Waits, ...] = ()


class DeclareListeners(Message, frozen=True, kw_only=True):
    """Declare all listeners of a LogCluster; empty: only the listener of the brokers'
    configuration."""

    listeners: tuple[Listener, ...]


class SetInsideMode(Message, frozen=True, kw_only=True):
    """The next step on the way to the mode that a LogCluster states."""

    mode: InsideMode


class AllowCertificates(Message, frozen=True, kw_only=True):
    """Set the certificates that a broker may present, newest first; empty: the broker is
    removed."""

    broker_id: BrokerId
    sha256: tuple[str, ...]


InsideRequest = SetInsideMode | AllowCertificates
