"""A LogCluster's settings for its brokers and its controller.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from plimsoll_core.cluster.cluster_configs import OF_SINGLE_BROKERS, broker_configs, own_integer
from plimsoll_core.cluster.record_versions import NEWEST, OLDEST, POOLS_SINCE, RELEASES, release_of
from plimsoll_core.cluster.topic_configs import UNCLEAN_ENABLE, UNCLEAN_RECOVERY
from plimsoll_core.controller.kernel.settings import InternalTopic, Settings
from plimsoll_core.errors import Reason, Refusal
from plimsoll_core.messages.brokers import LogOutput
from plimsoll_operator.api.cluster_topics import (
    REPLICATION_FACTOR_DEFAULT,
    TopicDefaults,
    TopicLimits,
    Topics,
)
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.api.maintenance import Maintenance
from plimsoll_operator.api.observed import Logging
from plimsoll_operator.api.pod_template import refusal_of as template_refusal
from plimsoll_operator.api.pools import Pool
from plimsoll_operator.api.pools import refusal_of as pools_refusal
from plimsoll_operator.api.rollout import refusal_of as rollout_refusal


def spec_refusal(cluster: LogCluster, metadata_version: int = OLDEST) -> Refusal | None:
    """Return why no broker may be run by this spec, or None: an invalid config, pools that share
    ids, pools that an older operator could still undo, or a template with a name of the operator's
    own. `metadata_version`: the finalised one, `OLDEST` if none is yet."""
    stated, spec = broker_configs_of(cluster), cluster.spec
    if isinstance(stated, Refusal):
        return stated
    if spec.brokers and (refusal := template_refusal(spec.brokers.template, "brokers.template")):
        return refusal
    if refusal := rollout_refusal(spec.rollout, spec.pools or ()):
        return refusal
    if not spec.pools:
        return None
    if refusal := _downgrade_refusal(cluster, metadata_version):
        return refusal
    return pools_refusal(spec.pools) or next(
        filter(None, (_pool_refusal(cluster, pool) for pool in spec.pools)), None
    )


def _downgrade_refusal(cluster: LogCluster, metadata_version: int) -> Refusal | None:
    """Refuse pools while an operator that knows none may still take the cluster over. A new cluster
    has no finalised version for a moment: its brokers finalise their newest."""
    spec, needed = cluster.spec, release_of(POOLS_SINCE)
    stated = {name: version for version, name in RELEASES.items()}
    pinned = pinned_metadata_version(cluster)
    if pinned is not None and pinned < POOLS_SINCE:
        cause = f"spec.metadataVersion is {spec.metadata_version}: remove it first"
    elif spec.version is not None and stated.get(spec.version, NEWEST) < POOLS_SINCE:
        cause = f"spec.version is {spec.version}: upgrade the brokers first"
    elif OLDEST < metadata_version < POOLS_SINCE:
        cause = (
            f"the cluster has {release_of(metadata_version)}: remove spec.pools, upgrade the "
            f"brokers, and set spec.pools again when status.versions.metadata is {needed}"
        )
    else:
        return None
    return Refusal(
        reason=Reason.MetadataTooOld,
        message=(
            f"spec.pools needs metadata version {needed}, because an older operator would ignore "
            f"the pools and drain their brokers; {cause}."
        ),
    )


def _pool_refusal(cluster: LogCluster, pool: Pool) -> Refusal | None:
    where = f"pools[{pool.name}]"
    if common := sorted(set(pool.config or ()) - OF_SINGLE_BROKERS):
        return Refusal(
            reason=Reason.InvalidConfig,
            message=(
                f"{where}.config cannot set {common[0]}: that config is the same for all brokers "
                "of a cluster, so set it in spec.config. A pool may set "
                f"{', '.join(sorted(OF_SINGLE_BROKERS))}."
            ),
        )
    configs = broker_configs_of(cluster.as_pool(pool))
    if isinstance(configs, Refusal):
        return Refusal(
            reason=configs.reason, message=f"{where}.config is invalid: {configs.message}"
        )
    return template_refusal(pool.template, f"{where}.template")


def broker_configs_of(cluster: LogCluster) -> dict[str, str] | Refusal:
    """Return the brokers' configs that `spec.config` states, checked, or a refusal that names the
    faulty one. `spec.uncleanRecovery` is added under its Kafka name, so that clients that describe
    a broker see it."""
    stated = config_strings(cluster.spec.config or {})
    for key in (UNCLEAN_ENABLE, UNCLEAN_RECOVERY):
        if key in stated:
            return Refusal(
                reason=Reason.InvalidConfig,
                message=(
                    f"The config {key} cannot be set in spec.config; set spec.uncleanRecovery "
                    "instead."
                ),
            )
    if cluster.spec.unclean_recovery is not None:
        stated[UNCLEAN_RECOVERY] = cluster.spec.unclean_recovery
    return broker_configs(stated)


def settings_of(cluster: LogCluster, chart: Settings | None = None) -> Settings:
    """Return the settings by which the controller decides: those of the LogCluster, and those of
    the `chart` for fields that it leaves unset."""
    topics = cluster.spec.topics or Topics()
    defaults, limits = topics.defaults or TopicDefaults(), topics.limits or TopicLimits()
    factor = default_replication_factor(cluster)
    plain, maintenance = chart or Settings(), cluster.spec.maintenance or Maintenance()
    return replace(
        plain,
        default_partitions=defaults.partitions or plain.default_partitions,
        default_replication_factor=factor,
        default_min_isr=min(defaults.min_in_sync_replicas or plain.default_min_isr, factor),
        partitions_per_topic_max=limits.partitions_per_topic or plain.partitions_per_topic_max,
        partitions_per_cluster_max=limits.partitions_per_cluster
        or plain.partitions_per_cluster_max,
        partitions_per_namespace_max=limits.partitions_per_namespace,
        offsets_topic=_internal_topic(cluster, "offsets.topic"),
        client_created_topics=topics.client_created != "Deny",
        rack_policy=cluster.rack_policy,
        unclean_recovery=cluster.unclean_recovery,
        exposed_topics=maintenance.exposed_topics or plain.exposed_topics,
        maintenance_suspended=bool(maintenance.suspended),
        metadata_version=pinned_metadata_version(cluster),
        log_output=_log_output(cluster),
    )


def _log_output(cluster: LogCluster) -> LogOutput:
    """Return the level and format of the brokers' log lines. An empty field means that a broker
    keeps the value with which it was started."""
    stated = cluster.spec.logging or Logging()
    return LogOutput(level=(stated.level or "").upper(), format=stated.format or "")


def _internal_topic(cluster: LogCluster, prefix: str) -> InternalTopic:
    """Return the partitions, replication factor and segment size of an internal topic, from the
    LogCluster's configs that begin with `prefix`. If these are invalid, return the defaults."""
    stated = broker_configs_of(cluster)
    configs = {} if isinstance(stated, Refusal) else stated
    return InternalTopic(
        partitions=own_integer(configs, f"{prefix}.num.partitions"),
        replication_factor=own_integer(configs, f"{prefix}.replication.factor"),
        segment_bytes=own_integer(configs, f"{prefix}.segment.bytes"),
    )


EXACT_FLOATS = 2.0**53
"""Bound below which every whole number has an exact float."""


def pinned_metadata_version(cluster: LogCluster) -> int | None:
    """Return the metadata version that `spec.metadataVersion` names, or None if it is unset. A name
    that this release does not know counts as newer than all that it knows."""
    stated = cluster.spec.metadata_version
    if stated is None:
        return None
    named = {name: version for version, name in RELEASES.items()}
    return named.get(stated, NEWEST + 1)


def default_replication_factor(cluster: LogCluster) -> int:
    """Return the replication factor of topics that state none: the LogCluster's default, else 3, or
    the number of brokers if that is less."""
    defaults = (cluster.spec.topics or Topics()).defaults or TopicDefaults()
    return defaults.replication_factor or min(REPLICATION_FACTOR_DEFAULT, cluster.count)


def config_strings(config: Mapping[str, int | float | bool | str]) -> dict[str, str]:
    """Format configs as Kafka does, in key order."""
    return {key: _config_string(config[key]) for key in sorted(config)}


def _config_string(value: int | float | bool | str) -> str:
    """Format one value as Kafka does. JSON has one kind of number, so the float 2.0 becomes `2`."""
    if isinstance(value, bool):
        return str(value).lower()
    whole = isinstance(value, float) and value.is_integer() and abs(value) < EXACT_FLOATS
    return str(int(value) if whole else value)
