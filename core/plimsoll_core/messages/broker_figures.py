"""A broker's report of itself in each heartbeat, for the LogBroker that people read; and the
settings of the LogCluster that it gets with each answer.

Only three decisions depend on it: closing the inside (`inside`), how many partitions may be created
(`controller.topics.topic_creation`), and leadership while a disk is nearly full
(`controller.partitions.failed_disks`).  A broker of an earlier release reports nothing.
"""

from __future__ import annotations

import msgspec

from plimsoll_core.ids import MetadataOffset


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

    `disk_bytes`, `disk_free_bytes`: of the logs' file system, None before the first look.
    `completed_offset`: metadata records below it have had all their effects on this broker's
    replicas; None while it loads them. `copied_offset`: metadata records below it are in its copy
    on disk; None if the copy cannot be written. `inside`: None from an earlier release.
    `closed_listeners`: why a declared listener is not open, by its name. `partitions_max`: replicas
    for which it has memory and file descriptors; None: not reported. `disk_short`: True if it
    refuses clients' records because its disk is nearly full."""

    disk_free_bytes: int | None = None
    disk_bytes: int | None = None
    completed_offset: MetadataOffset | None = None
    copied_offset: MetadataOffset | None = None
    inside: InsideFigures | None = None
    closed_listeners: dict[str, str] = {}
    partitions_max: int | None = None
    disk_short: bool = False


class LogOutput(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The level and format of a broker's log lines; an empty value stands for that of its start.
    `level`: a name of Python's `logging`; `format`: `Text` or `Json`."""

    level: str = ""
    format: str = ""


AS_STARTED = LogOutput()


class TopicDefaults(msgspec.Struct, frozen=True, kw_only=True):
    """The controller's defaults for a new topic, which a broker tells to clients that ask."""

    partitions: int
    replication_factor: int
    min_isr: int
