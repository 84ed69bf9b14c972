"""Requests about brokers (members, removals, restarts, listeners, TLS between brokers), and a
broker's report of itself in each heartbeat.

The report (`BrokerFigures`) is for the LogBroker that people read, and the answer brings the
settings of the LogCluster. Only three decisions depend on the report: requiring TLS between brokers
(`inside`), how many partitions may be created (`controller.topics.topic_creation`), and leadership
while a disk is nearly full (`controller.partitions.failed_disks`). A broker of an earlier release
reports nothing.
"""

from __future__ import annotations

import msgspec

from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.ids import BrokerEpoch, BrokerId, MetadataOffset
from plimsoll_core.messages.base import Message
from plimsoll_core.security.inside import InsideMode


class InsideFigures(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A broker's report on its connections to other brokers and to controllers.

    `sha256`: fingerprint of the certificate that it presents, empty if it has none. `authorities`:
    fingerprints of the authority certificates that it trusts. `plaintext`: number of its open
    unencrypted connections, incoming and outgoing. `only_tls`: True if it opens none in plaintext.
    """

    sha256: str = ""
    authorities: tuple[str, ...] = ()
    plaintext: int = 0
    only_tls: bool = False


class BrokerFigures(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Figures that a broker reports with its heartbeats.

    `disk_bytes`, `disk_free_bytes`: size of the logs' file system and free bytes on it, None before
    the first measurement. `completed_offset`: metadata records below it have had all their effects
    on this broker's replicas; None while it loads them. `copied_offset`: metadata records below it
    are in its copy on disk; None if the copy cannot be written. `inside`: None from an earlier
    release. `closed_listeners`: for each declared listener that is not open, by name, the reason.
    `partitions_max`: the number of replicas for which it has memory and file descriptors; None if
    not reported. `disk_short`: True if it refuses clients' records because its disk is nearly full.
    `drill`: the number of the newest drill order that it has taken; 0 if there is none.
    """

    disk_free_bytes: int | None = None
    disk_bytes: int | None = None
    completed_offset: MetadataOffset | None = None
    copied_offset: MetadataOffset | None = None
    inside: InsideFigures | None = None
    closed_listeners: dict[str, str] = {}
    partitions_max: int | None = None
    disk_short: bool = False
    drill: int = 0


class LogOutput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The level and format of a broker's log lines. An empty value stands for the broker's value at
    its start. `level`: a name of Python's `logging`; `format`: `Text` or `Json`."""

    level: str = ""
    format: str = ""


AS_STARTED = LogOutput()


class TopicDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """The controller's defaults for a new topic, which a broker tells to clients that ask."""

    partitions: int
    replication_factor: int
    min_isr: int


class SetLeaving(Message, frozen=True, kw_only=True):
    """Set the list of all brokers that are to be removed. Brokers on the list get no new
    replicas."""

    broker_ids: tuple[BrokerId, ...]


class SettleNewcomers(Message, frozen=True, kw_only=True):
    """Report that the operator has arranged or declined a rebalance for these new brokers, so that
    the controller need not consider it again."""

    broker_ids: tuple[BrokerId, ...]


class UnregisterBroker(Message, frozen=True, kw_only=True):
    """Remove a broker's registration for good. Its id may be registered again. `pvc_uid`: the uid
    of its volume's claim, if the volume is to be deleted too."""

    broker_id: BrokerId
    broker_epoch: BrokerEpoch
    pvc_uid: str | None = None


class VolumeGone(Message, frozen=True, kw_only=True):
    """Report that the claim of a removed broker's volume no longer exists."""

    pvc_uid: str


class DismissCopy(Message, frozen=True, kw_only=True):
    """Prepare that a broker drops its copy of the metadata, which a person gave up."""

    broker_id: BrokerId


MembershipRequest = SetLeaving | SettleNewcomers | UnregisterBroker | VolumeGone


class Waits(msgspec.Struct, frozen=True, kw_only=True):
    """A condition that a restart waits for. `until`: completes a sentence that ends in "until".
    `topic` and `index` are set if a partition is the cause. `of_stage`: True if the restart waits
    for its pool's turn."""

    reason: str
    until: str
    topic: str | None = None
    index: int | None = None
    of_stage: bool = False


class RolledPool(msgspec.Struct, frozen=True, kw_only=True):
    """A pool that rolls before another one: its members, and the template revision that they shall
    run."""

    name: str
    revision: str
    broker_ids: tuple[BrokerId, ...]


class RollStage(msgspec.Struct, frozen=True, kw_only=True):
    """The stage of a staged roll to which a restart belongs. `earlier`: the pools that roll before
    the broker's. `hold`: the pause or approval for which the pool waits after them, None if there
    is none. `cannot_start`: True if the broker's pod does not start, by Kubernetes' words."""

    earlier: tuple[RolledPool, ...] = ()
    hold: Waits | None = None
    cannot_start: bool = False


class RequestRestart(Message, frozen=True, kw_only=True):
    """Ask for permission to replace the pod `pod_uid` of a broker by a pod of template revision
    `revision`. `stage`: None if all pools roll together."""

    broker_id: BrokerId
    pod_uid: str | None = None
    revision: str = ""
    stage: RollStage | None = None


class WithdrawRestart(Message, frozen=True, kw_only=True):
    """Return a granted permission to restart a broker, because its pod already runs the wanted
    revision and its replacement has not begun. `revision`: the revision for which the permission
    was given."""

    broker_id: BrokerId
    pod_uid: str
    revision: str


class SetHibernation(Message, frozen=True, kw_only=True):
    """Put the cluster to sleep, or wake it: take the leaders of all partitions away, or elect
    them."""

    hibernated: bool


class RestartAnswer(Message, frozen=True, kw_only=True):
    """The answer to a request for a restart: granted, by this request or an earlier one, or not. If
    not, `waits` has the worst of the `total` conditions that it waits for, the worst first."""

    granted: bool
    total: int = 0
    waits: tuple[Waits, ...] = ()


class DeclareListeners(Message, frozen=True, kw_only=True):
    """Declare all listeners of a LogCluster. If there are none, brokers open only the listener of
    their configuration."""

    listeners: tuple[Listener, ...]


class SetInsideMode(Message, frozen=True, kw_only=True):
    """Set the TLS mode of connections between brokers and controllers, one step towards the mode
    that the LogCluster states."""

    mode: InsideMode


class AllowCertificates(Message, frozen=True, kw_only=True):
    """Set the fingerprints of the certificates that a broker may present to brokers and
    controllers, newest first; none if the broker is removed."""

    broker_id: BrokerId
    sha256: tuple[str, ...]


InsideRequest = SetInsideMode | AllowCertificates
