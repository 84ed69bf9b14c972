"""What an earlier LogCluster of the same name left in a namespace: a metadata log, and volumes.

`read_remains` reads it; the other functions are pure. `former` decides which cluster a recreated
LogCluster continues by itself, and `against` names volumes that must not be used together. A volume
belongs to one broker, by its name, and to one cluster, by its labels. The broker checks both again
in the files of its volume (`storage.volume_owner`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from uuid import UUID

from plimsoll_core.ids import BrokerId
from plimsoll_operator.api import labels
from plimsoll_operator.api.cluster_ids import kafka_id
from plimsoll_operator.api.logcluster import LogCluster
from plimsoll_operator.kube.kube_api import KubeApi, Object
from plimsoll_operator.kube.resources import METADATA_BATCHES, VOLUME_CLAIMS

LOGS_MAX = 4
"""Largest number of metadata logs under one name that are told apart; more change no decision."""
NAMES_MAX = 4
Ids = frozenset[BrokerId]


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerVolume:
    """The volume claim of a broker. `broker_id`: by the claim's name. `labelled_broker`: by its
    label, "" without one. `cluster_id`: of the cluster that owns it; None if no label states it
    whole. `short_id`: the beginning of that id, "" if no label states it."""

    name: str
    broker_id: int
    labelled_broker: str
    cluster_id: UUID | None
    short_id: str

    @property
    def owner(self) -> str:
        """Return the owner's id for a message: whole if it is known, else its beginning."""
        if self.cluster_id is not None:
            return kafka_id(self.cluster_id)
        return f"{self.short_id}…" if self.short_id else "unknown"


@dataclass(frozen=True, slots=True, kw_only=True)
class Remains:
    """The metadata logs and the volumes that stand under a LogCluster's name in its namespace."""

    logs: frozenset[UUID]
    volumes: tuple[BrokerVolume, ...]


def volume_of(name: str, claim: Object) -> BrokerVolume | None:
    """Return the volume claim as one of a broker of the LogCluster `name`. Return None if its name
    is not that of a broker's claim."""
    meta = claim["metadata"]
    broker_id = broker_of_claim(name, meta["name"])
    if broker_id is None:
        return None
    shown = meta.get("labels") or {}
    return BrokerVolume(
        name=meta["name"],
        broker_id=broker_id,
        labelled_broker=shown.get(labels.BROKER_ID, ""),
        cluster_id=_uuid(shown.get(labels.LOG_CLUSTER_ID, "")),
        short_id=shown.get(labels.CLUSTER_ID, ""),
    )


def broker_of_claim(name: str, claim: str) -> int | None:
    """Return the id of the broker of the LogCluster `name` to which the volume claim with the name
    `claim` belongs; None for any other claim."""
    if not (claim.startswith("data-") and claim.endswith("-0")):
        return None
    return labels.broker_of(name, claim.removeprefix("data-").removesuffix("-0"))


def _uuid(text: str) -> UUID | None:
    try:
        return UUID(text)
    except ValueError:
        return None


async def read_remains(kube: KubeApi, namespace: str, name: str) -> Remains:
    """Read which metadata logs and volumes have the label of the LogCluster `name`. Raises
    ApiError."""
    logs: set[UUID] = set()
    while len(logs) < LOGS_MAX:
        others = "".join(f",{labels.LOG_CLUSTER_ID}!={known}" for known in sorted(logs))
        selector = f"{labels.CLUSTER}={name}{others}"
        found = await kube.first(METADATA_BATCHES, namespace, label_selector=selector)
        if found is None:
            break
        logs.add(UUID(found["metadata"]["labels"][labels.LOG_CLUSTER_ID]))
    selector = f"{labels.CLUSTER}={name}"
    claims = await kube.list(VOLUME_CLAIMS, namespace, label_selector=selector)
    volumes = (volume_of(name, claim) for claim in claims.items)
    return Remains(logs=frozenset(logs), volumes=tuple(v for v in volumes if v is not None))


async def brokers_with_volumes(kube: KubeApi, cluster: LogCluster, wanted: UUID) -> Ids:
    """Return the ids of the brokers that have a volume of the cluster `wanted`, by the claims'
    labels. If the object states `spec.clusterId`, a claim without a label of any cluster counts
    too: its data was handed over by a person. Raises ApiError."""
    namespace, name = cluster.key
    short, stated = labels.short_id(wanted), bool(cluster.spec.cluster_id)
    claims = await kube.list(VOLUME_CLAIMS, namespace)
    volumes = (volume_of(name, claim) for claim in claims.items)
    return frozenset(
        BrokerId(one.broker_id)
        for one in volumes
        if one is not None
        and (one.short_id == short or (stated and not one.short_id))
        and one.cluster_id in (None, wanted)
    )


def former(remains: Remains) -> UUID | None:
    """Return the id of the cluster that a LogCluster without `spec.clusterId` and without a
    metadata log of its own continues by itself. Return None if it continues none: there are no
    volumes, they or a metadata log belong to several clusters, or their id is not known whole.

    A metadata log without volumes is not enough: the records that it names are gone.
    """
    if not remains.volumes or any(_is_misplaced(one) for one in remains.volumes):
        return None
    owners = {one.short_id for one in remains.volumes}
    whole = {one.cluster_id for one in remains.volumes if one.cluster_id} | remains.logs
    if len(owners) != 1 or len(whole) != 1:
        return None
    found = next(iter(whole))
    return found if labels.short_id(found) in owners else None


def against(volumes: Iterable[BrokerVolume], wanted: UUID) -> str:
    """Return a sentence that names the volumes which keep a LogCluster from running as the cluster
    `wanted`: they are of other clusters, or of another broker than their name says. Return "" if
    there are none."""
    volumes = sorted(volumes, key=lambda one: one.broker_id)
    if misplaced := [one for one in volumes if _is_misplaced(one)]:
        said = _listed(
            f"{one.name} is labelled as that of broker {one.labelled_broker}" for one in misplaced
        )
        return (
            f"Volumes are mixed up: {said}. Give each PersistentVolumeClaim the data of the "
            f"broker in its name, or correct its label {labels.BROKER_ID}."
        )
    short = labels.short_id(wanted)
    foreign = [one for one in volumes if one.short_id not in ("", short)]
    foreign += [one for one in volumes if one.cluster_id not in (None, wanted)]
    if not foreign:
        return ""
    owners = {one.short_id for one in foreign}
    if len(owners) > 1 or len(set(foreign)) < len(volumes):
        said = _listed(f"{one.name} (cluster {one.owner})" for one in volumes)
        return (
            "The PersistentVolumeClaims with the name of this LogCluster hold volumes of several "
            f"clusters: {said}. Keep those of one cluster and delete the others; to keep their "
            "data, first set the reclaim policy of their PersistentVolumes to Retain."
        )
    return _of_one_other(volumes, foreign[0])


def _of_one_other(volumes: list[BrokerVolume], one: BrokerVolume) -> str:
    whole = next((v.cluster_id for v in volumes if v.cluster_id is not None), None)
    choices = "choose another name, or delete the volumes"
    names = _listed(v.name for v in volumes)
    if whole is None:
        return (
            f"The volumes {names} belong to another cluster; its id begins with {one.short_id}, "
            "and the file meta.properties of each volume contains the whole id (docs/recovery.md). "
            "To continue that cluster, create the LogCluster again with spec.clusterId set to the "
            f"whole id; else {choices}."
        )
    return (
        f"The volumes {names} belong to cluster {kafka_id(whole)}. To continue that cluster, "
        f"create the LogCluster again with spec.clusterId: {kafka_id(whole)}; else {choices}."
    )


def _is_misplaced(volume: BrokerVolume) -> bool:
    return volume.labelled_broker not in ("", str(volume.broker_id))


def _listed(texts: Iterable[str]) -> str:
    found = list(texts)
    more = f" and {len(found) - NAMES_MAX} more" if len(found) > NAMES_MAX else ""
    return ", ".join(found[:NAMES_MAX]) + more
