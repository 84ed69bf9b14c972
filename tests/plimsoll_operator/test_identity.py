"""A log or a volume of another cluster is never taken over without being told to."""

from uuid import UUID

import pytest
from msgspec.structs import replace
from tests.plimsoll_operator.builders import CLUSTER_UID, a_cluster
from tests.plimsoll_operator.scripted_kube import ScriptedKube

from plimsoll_operator.api import labels
from plimsoll_operator.api.cluster_ids import kafka_id
from plimsoll_operator.api.labels import LOG_CLUSTER_ID
from plimsoll_operator.kube.resources import METADATA_BATCHES, SECRETS, VOLUME_CLAIMS, Kind
from plimsoll_operator.leadership.cluster_identity import (
    CHANGED,
    OTHER_LOG,
    OTHER_VOLUME,
    TAKEN,
    objection,
)

OWN = UUID(CLUSTER_UID)
OLD = UUID("11111111-2222-4333-8444-555555555555")


def hold(kube: ScriptedKube, kind: Kind, **found: str) -> None:
    meta = {"name": f"{kind.plural}-{len(kube.objects)}", "namespace": "kafka", "labels": found}
    kube.put(kind, {"metadata": meta})


def hold_log(kube: ScriptedKube, cluster_id: UUID) -> None:
    hold(kube, METADATA_BATCHES, **{labels.CLUSTER: "main", LOG_CLUSTER_ID: str(cluster_id)})


def hold_volume(kube: ScriptedKube, cluster_id: UUID) -> None:
    short = labels.short_id(cluster_id)
    hold(kube, VOLUME_CLAIMS, **{labels.CLUSTER: "main", labels.CLUSTER_ID: short})


async def test_new_cluster_without_a_past_is_run():
    assert await objection(ScriptedKube(), a_cluster()) is None


async def test_own_log_and_volumes_are_run():
    kube = ScriptedKube()
    hold_log(kube, OWN)
    hold_volume(kube, OWN)
    assert await objection(kube, a_cluster()) is None


async def test_log_of_deleted_cluster_is_named_and_kept():
    kube = ScriptedKube()
    hold_log(kube, OLD)
    found = await objection(kube, a_cluster())
    assert found is not None
    assert found[0] == OTHER_LOG
    assert kafka_id(OLD) in found[1]


async def test_log_and_volumes_are_adopted_by_their_id():
    kube = ScriptedKube()
    hold_log(kube, OLD)
    hold_volume(kube, OLD)
    cluster = a_cluster(clusterId=kafka_id(OLD))
    assert await objection(kube, cluster) is None


async def test_volume_of_another_cluster_is_refused():
    kube = ScriptedKube()
    hold_volume(kube, OLD)
    found = await objection(kube, a_cluster())
    assert found is not None
    assert found[0] == OTHER_VOLUME


async def test_running_cluster_does_not_change_its_id():
    kube = ScriptedKube()
    hold_log(kube, OWN)
    cluster = a_cluster(clusterId=kafka_id(OLD))
    found = await objection(kube, cluster)
    assert found is not None
    assert found[0] == CHANGED


LIKE_OLD = UUID("11111111-2222-4333-8444-666666666666")
SYSTEM = "plimsoll-system"


@pytest.mark.parametrize("stated", [OLD, LIKE_OLD], ids=["its id", "one that begins like it"])
async def test_cluster_id_of_other_namespace_is_refused(stated: UUID):
    """By it the thief would have certificates of its authorities, and be asked for by its brokers.
    Any client is told the id."""
    thief = a_cluster(clusterId=kafka_id(stated))
    thief = replace(thief, metadata=replace(thief.metadata, uid=str(OWN)))
    victim = a_cluster()
    metadata = replace(victim.metadata, namespace="victims", uid=str(OLD))
    found = await objection(ScriptedKube(), thief, (thief, replace(victim, metadata=metadata)))
    assert found is not None
    assert found[0] == TAKEN
    assert "LogCluster victims/main" in found[1]


@pytest.mark.parametrize(
    ("holder", "refused"), [("victims/main", True), ("", True), ("kafka/main", False)]
)
@pytest.mark.parametrize("name", [labels.listener_authority(OLD), labels.inside_authority(OLD)])
async def test_authorities_of_deleted_cluster_are_not_reused(holder: str, refused: bool, name: str):
    kube = ScriptedKube()
    annotations = {labels.AUTHORITY_OF: holder} if holder else {}
    meta = {"name": name, "namespace": SYSTEM, "annotations": annotations}
    kube.put(SECRETS, {"metadata": meta})
    thief = a_cluster(clusterId=kafka_id(OLD))
    found = await objection(kube, thief, (thief,), SYSTEM)
    assert (found is not None and found[0] == TAKEN) == refused
    hold_log(kube, OLD)
    assert await objection(kube, thief, (thief,), SYSTEM) is None, "what is here is adopted"
