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
    Claimants,
    identity_of,
    objection,
)
from plimsoll_operator.leadership.cluster_remains import brokers_with_volumes

OWN = UUID(CLUSTER_UID)
OLD = UUID("11111111-2222-4333-8444-555555555555")


def hold(kube: ScriptedKube, kind: Kind, **found: str) -> None:
    meta = {"name": f"{kind.plural}-{len(kube.objects)}", "namespace": "kafka", "labels": found}
    kube.put(kind, {"metadata": meta})


def hold_log(kube: ScriptedKube, cluster_id: UUID) -> None:
    hold(kube, METADATA_BATCHES, **{labels.CLUSTER: "main", LOG_CLUSTER_ID: str(cluster_id)})


def hold_volume(
    kube: ScriptedKube,
    cluster_id: UUID | None,
    broker: int = 0,
    *,
    labelled: int | None = None,
    whole: bool = True,
) -> None:
    """A claim of a broker; with `cluster_id` None, one that a person made, without any label."""
    shown = {}
    if cluster_id is not None:
        shown = {labels.CLUSTER: "main", labels.CLUSTER_ID: labels.short_id(cluster_id)}
        shown[labels.BROKER_ID] = str(broker if labelled is None else labelled)
        if whole:
            shown[LOG_CLUSTER_ID] = str(cluster_id)
    meta = {"name": f"data-main-broker-{broker}-0", "namespace": "kafka", "labels": shown}
    kube.put(VOLUME_CLAIMS, {"metadata": meta})


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
    assert kafka_id(OLD) in found[1]


async def test_unlabelled_id_is_asked_of_user():
    kube = ScriptedKube()
    hold_volume(kube, OLD, whole=False)
    assert await identity_of(kube, a_cluster()) == OWN
    found = await objection(kube, a_cluster())
    assert found is not None
    assert "meta.properties" in found[1]


async def test_running_cluster_does_not_change_its_id():
    kube = ScriptedKube()
    hold_log(kube, OWN)
    cluster = a_cluster(clusterId=kafka_id(OLD))
    found = await objection(kube, cluster)
    assert found is not None
    assert found[0] == CHANGED


LIKE_OTHER = UUID("99999999-2222-4333-8444-555555555555")
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
    others = Claimants(clusters=(thief, replace(victim, metadata=metadata)))
    found = await objection(ScriptedKube(), thief, others)
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
    here = Claimants(clusters=(thief,), authorities_in=SYSTEM)
    found = await objection(kube, thief, here)
    assert (found is not None and found[0] == TAKEN) == refused
    hold_log(kube, OLD)
    found = await objection(kube, thief, here)
    assert (found is not None and found[0] == TAKEN) == (holder == "victims/main"), (
        "what is here is adopted, unless the CAs say whose it is"
    )
    if found is not None:
        assert f"{labels.AUTHORITY_OF}=kafka/main" in found[1]


@pytest.mark.parametrize("stated", [OLD, LIKE_OLD], ids=["its id", "one that begins like it"])
async def test_forged_log_gives_no_other_clusters_id(stated: UUID):
    """Whoever may write every object in a namespace can write one with the labels of a log. The
    thief would lead the victim's brokers, which hand it their copies of the metadata."""
    kube = ScriptedKube()
    hold_log(kube, stated)
    thief = a_cluster(clusterId=kafka_id(stated))
    thief = replace(thief, metadata=replace(thief.metadata, uid=str(OWN)))
    victim = a_cluster()
    metadata = replace(victim.metadata, namespace="victims", uid=str(OLD))
    others = Claimants(clusters=(thief, replace(victim, metadata=metadata)))
    found = await objection(kube, thief, others)
    assert found is not None
    assert found[0] == TAKEN
    assert "LogCluster victims/main" in found[1]
    assert await objection(kube, thief, Claimants(clusters=(thief,))) is None


# --- a LogCluster that was applied again ----------------------------------------------------------


@pytest.mark.parametrize("with_log", [True, False])
async def test_recreated_object_continues_cluster_of_its_volumes(with_log: bool):
    kube = ScriptedKube()
    for broker in range(3):
        hold_volume(kube, OLD, broker)
    if with_log:
        hold_log(kube, OLD)
    found = await identity_of(kube, a_cluster())
    assert found == OLD
    assert await objection(kube, a_cluster(), wanted=found) is None
    assert await brokers_with_volumes(kube, a_cluster(), found) == {0, 1, 2}


async def test_log_completes_short_volume_label():
    kube = ScriptedKube()
    hold_volume(kube, OLD, whole=False)
    hold_log(kube, OLD)
    assert await identity_of(kube, a_cluster()) == OLD


async def test_own_log_wins_over_former_volumes():
    kube = ScriptedKube()
    hold_log(kube, OWN)
    hold_volume(kube, OLD)
    assert await identity_of(kube, a_cluster()) == OWN


async def test_former_log_without_volumes_is_not_continued():
    kube = ScriptedKube()
    hold_log(kube, OLD)
    assert await identity_of(kube, a_cluster()) == OWN


async def test_volumes_of_two_clusters_are_named_and_refused():
    kube = ScriptedKube()
    hold_volume(kube, OLD, 0)
    hold_volume(kube, LIKE_OTHER, 1)
    assert await identity_of(kube, a_cluster()) == OWN
    for stated in ({}, {"clusterId": kafka_id(OLD)}):
        found = await objection(kube, a_cluster(**stated))
        assert found is not None
        assert found[0] == OTHER_VOLUME
        assert f"data-main-broker-0-0 (cluster {kafka_id(OLD)})" in found[1]
        assert f"data-main-broker-1-0 (cluster {kafka_id(LIKE_OTHER)})" in found[1]


async def test_volume_under_another_brokers_name_is_refused():
    kube = ScriptedKube()
    hold_volume(kube, OLD, 0)
    hold_volume(kube, OLD, 1, labelled=0)
    assert await identity_of(kube, a_cluster()) == OWN
    found = await objection(kube, a_cluster(clusterId=kafka_id(OLD)))
    assert found is not None
    assert "data-main-broker-1-0 is labelled as that of broker 0" in found[1]


async def test_claimed_id_is_not_continued():
    kube = ScriptedKube()
    hold_volume(kube, OLD)
    other = a_cluster()
    other = replace(other, metadata=replace(other.metadata, namespace="victims", uid=str(OLD)))
    claimants = Claimants(clusters=(a_cluster(), other))
    assert await identity_of(kube, a_cluster(), claimants) == OWN
    found = await objection(kube, a_cluster(), claimants)
    assert found is not None
    assert "The cluster id belongs to LogCluster victims/main." in found[1]


async def test_continued_id_counts_as_claimed():
    kube = ScriptedKube()
    hold_volume(kube, OLD)
    other = a_cluster()
    other = replace(other, metadata=replace(other.metadata, name="other", uid=str(LIKE_OTHER)))
    claimants = Claimants(clusters=(other,), continued={("kafka", "other"): OLD})
    assert await identity_of(kube, a_cluster(), claimants) == OWN


async def test_handed_over_volumes_count_with_stated_id():
    kube = ScriptedKube()
    hold_volume(kube, None, 0)
    hold_volume(kube, None, 1)
    assert await brokers_with_volumes(kube, a_cluster(), OWN) == frozenset()
    stated = a_cluster(clusterId=kafka_id(OLD))
    assert await brokers_with_volumes(kube, stated, OLD) == {0, 1}
