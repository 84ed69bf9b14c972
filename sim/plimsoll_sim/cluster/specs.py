"""Builds the LogCluster and the Topic with which a run begins, from its options."""

from __future__ import annotations

from uuid import UUID

from msgspec.structs import replace

from plimsoll_core.cluster.record_versions import RELEASES
from plimsoll_core.security.acl import ANONYMOUS
from plimsoll_operator.api.authorization import DeclaredAuthorization
from plimsoll_operator.api.backup import Backup
from plimsoll_operator.api.certificates import (
    BundleKey,
    Certificates,
    ClientCertificates,
    ExternalCa,
    InternalCertificates,
)
from plimsoll_operator.api.cluster_topics import TopicDeletion, Topics
from plimsoll_operator.api.cluster_users import ClusterUsers, UserDeletion
from plimsoll_operator.api.evidence import S3
from plimsoll_operator.api.listeners import DeclaredListener, ListenerTls
from plimsoll_operator.api.logcluster import (
    Brokers,
    LogClusterSpec,
    Movement,
    Retention,
    Storage,
)
from plimsoll_operator.api.meta import ClusterRef
from plimsoll_operator.api.rollout import Rollout
from plimsoll_operator.api.topic import TopicSpec, TopicUncleanRecovery
from plimsoll_sim.checkers.expiries import OffsetsKept
from plimsoll_sim.cluster.run_options import RunOptions
from plimsoll_sim.desired.objects import excluded_ids, pools_of, rollout_of
from plimsoll_sim.hosts.brokers import KAFKA_PORT
from plimsoll_sim.hosts.certified_users import PARTNERS
from plimsoll_sim.hosts.tenants import CERTIFIED_PORT, SECURED_PORT

LISTENERS = (
    DeclaredListener(name="internal", port=KAFKA_PORT),
    DeclaredListener(name="secured", port=SECURED_PORT, authentication=("ScramSha512",)),
)
CERTIFIED = DeclaredListener(
    name="certified", port=CERTIFIED_PORT, tls=ListenerTls(), authentication=("Tls",)
)
"""Listener that accepts client certificates of the cluster's own authority, and of a partner's."""
SOON_GONE = ClusterUsers(deletion=UserDeletion(grace_seconds=1))
"""Rules for Users with a grace period of one second, shorter than the default because a run is
short."""
ENFORCED = DeclaredAuthorization(mode="Enforce", super_users=(ANONYMOUS,))
"""Authorization in mode Enforce. A client of the listener without logins may do everything."""
INSIDE: dict[str, Certificates | None] = {
    "stated": Certificates(internal=InternalCertificates(mode="Required")),
    # A cluster that was there before, and stays as it is; its owner says nothing later.
    "before": Certificates(internal=InternalCertificates(mode="Off")),
    "unstated": None,
}
OPEN = INSIDE["before"]
BACKUP_LOGIN = "backup-login"
"""Name of the Secret with the bucket's login."""
BACKUP = Backup(s3=S3(bucket="backups", secret=BACKUP_LOGIN))
LITTLE_ROOM_FOR_GROUPS = {
    "memory.limit.bytes": 2**22,
    "queued.max.request.bytes": 2**26,
    "queued.max.response.bytes": 2**26,
}
"""Broker configs that leave little memory for groups, which get an eighth of
`memory.limit.bytes`."""


def cleaning_configs(options: RunOptions) -> dict[str, str | int | bool]:
    """Return the brokers' configs for retention and cleaning, and those that a scenario states.
    Retention by age includes the newest segment; compacted topics and groups are cleaned all the
    time."""
    wanted: dict[str, str | int | bool] = dict(options.broker_configs)
    # No run takes so long that age would take a segment that was written in it.
    wanted.setdefault("log.retention.check.interval.ms", 1)
    if options.offsets_kept_ms is not None:
        wanted |= {"offsets.retention.minutes": 1, "offsets.retention.check.interval.ms": 200}
    if options.hoarders:
        wanted |= LITTLE_ROOM_FOR_GROUPS
        if options.hoarders == 1:  # alone it comes to its share within a run
            wanted["memory.limit.bytes"] = 2**20
    if not options.compacted and options.offsets_partitions is None:
        return wanted
    return wanted | {
        "log.cleaner.backoff.ms": 300,
        "log.cleaner.min.cleanable.ratio": "0",
        # No run takes so long: a replica that was away for longer may keep a deleted key.
        "log.cleaner.delete.retention.ms": 24 * 3_600_000,
    }


def offsets_kept(options: RunOptions) -> OffsetsKept:
    """Return how long brokers keep committed offsets: a week, or less if the run or scenario tests
    their expiry."""
    # With most looks at the clock a turn of many parts lasts for one more slice of 10 ms.
    turn_ms = 1_000 if options.slices_end > 0.5 else 100
    if options.offsets_kept_ms is not None:
        return OffsetsKept(options.offsets_kept_ms, drawn=True, turn_ms=turn_ms)
    minutes = int(dict(options.broker_configs).get("offsets.retention.minutes", 10_080))
    return OffsetsKept(minutes * 60_000, drawn=False, turn_ms=turn_ms)


def cluster_spec(options: RunOptions, cluster_id: UUID) -> LogClusterSpec:
    """Return the LogCluster's spec. Further configs belong to single machines (`BrokerHost`)."""
    ids = options.broker_ids
    unwanted = excluded_ids(ids, ids)
    count = None if options.pooled else options.brokers
    pinned = options.metadata_version
    return LogClusterSpec(
        cluster_id=str(cluster_id),
        metadata_version=None if pinned is None else RELEASES[pinned],
        brokers=Brokers(count=count, excluded_ids=unwanted or None),
        pools=pools_of(ids) if options.pooled else None,
        rollout=_rollout(options),
        storage=Storage(size="1Gi", retention=Retention(when_scaled=options.volumes_when_scaled)),
        topics=Topics(deletion=TopicDeletion(grace_seconds=0, max_per_hour=1_000)),
        movement=Movement(auto_rebalance=options.auto_rebalance),
        on_controller_loss=options.on_controller_loss,
        config=_config(options),
        certificates=_certificates(options),
        listeners=_listeners(options),
        users=SOON_GONE if options.certified else None,
        authorization=ENFORCED if options.tenants else None,
        backup=BACKUP if options.backup else None,
    )


def _rollout(options: RunOptions) -> Rollout | None:
    if options.staged_s is None or not options.pooled:
        return None
    return rollout_of(pools_of(options.broker_ids), options.staged_s)


def _certificates(options: RunOptions) -> Certificates | None:
    stated = INSIDE[options.inside_says] if options.inside else OPEN
    if not options.certified:
        return stated
    partners = ExternalCa(name=PARTNERS, config_map=BundleKey(name=PARTNERS))
    clients = ClientCertificates(external_cas=(partners,))
    return replace(stated or Certificates(), clients=clients)


def _listeners(options: RunOptions) -> tuple[DeclaredListener, ...] | None:
    if not options.tenants:
        return None
    return (*LISTENERS, CERTIFIED) if options.certified else LISTENERS


def _config(options: RunOptions) -> dict[str, int | float | bool | str] | None:
    if options.offsets_partitions is None:
        return None
    return {
        "offsets.topic.num.partitions": options.offsets_partitions,
        "offsets.topic.segment.bytes": options.segment_bytes,
    }


def topic_spec(cluster: str, options: RunOptions) -> TopicSpec:
    """Return the Topic's spec as it is first applied."""
    recovery = None
    if options.unclean_recovery != "Balanced":
        recovery = TopicUncleanRecovery(strategy=options.unclean_recovery)
    return TopicSpec(
        cluster_ref=ClusterRef(name=cluster),
        partitions=options.partitions,
        replication_factor=options.replication_factor,
        min_in_sync_replicas=options.min_isr,
        unclean_recovery=recovery,
        config={**options.cleanup},
    )
