"""Which release the brokers run, and what a LogCluster says of the versions around it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from tests.plimsoll_operator.builders import a_cluster, an_image
from tests.plimsoll_operator.rolling import Cluster
from tests.plimsoll_operator.terms import Scene

from plimsoll_core.cluster.image import append
from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.cluster.record_versions import NEWEST, RELEASES, UNDERSTOOD
from plimsoll_core.cluster.records import MetadataVersionFinalized
from plimsoll_core.controller.kernel.volatile_state import Contact
from plimsoll_core.release import RELEASE
from plimsoll_operator.api.broker_configs import settings_of
from plimsoll_operator.kube.errors import Unavailable
from plimsoll_operator.kube.resources import LOG_CLUSTERS
from plimsoll_operator.options import BadOption, OperatorOptions, from_environment
from plimsoll_operator.reconcile.cluster import release_versions
from plimsoll_operator.reconcile.shared import pinned_choices
from plimsoll_operator.reconcile.shared.broker_rolls import rolls_of
from plimsoll_operator.reconcile.shared.pinned_choices import brokers_version, choices_of
from plimsoll_operator.reconcile.work_queue import Retry

BEFORE = "0.1"
IMAGES = {BEFORE: "plimsoll/broker:1", RELEASE: "plimsoll/broker:2"}
OPTIONS = OperatorOptions(
    identity="x",
    broker_image=IMAGES[RELEASE],
    broker_images=IMAGES,
    controllers=("plimsoll-controller.plimsoll-system.svc:9093",),
)
FINALIZED = MetadataVersionFinalized(cause="x", metadata_version=2)


def a_scene(committed: ClusterImage | None = None, **spec: Any) -> Cluster:
    """A LogCluster under an operator that can run both releases; broker 0 is its only one."""
    spec = {"brokers": {"count": 1}, **spec}
    made = Cluster(committed or an_image((0,)), spec)
    made.scene.term.options = OPTIONS
    return made


async def look(made: Cluster) -> None:
    await pinned_choices.read(made.scene.term)
    await made.look()


async def made_by_the_release_before(made: Cluster) -> None:
    """Leave what its operator left on the API server, without status.versions."""
    made.scene.declare(brokers={"count": 1}, version=BEFORE)
    await look(made)
    made.start_pods()
    made.take_part(0)
    made.scene.declare(brokers={"count": 1})
    choices_of(made.scene.term).release = None


def shown(scene: Scene, **fields: str) -> None:
    found = scene.kube.find(LOG_CLUSTERS, "kafka", "main")
    plain = {"operator": "0.1", "brokers": {}, "metadata": "0.1", "metadataFinalizable": "0.1"}
    scene.kube.put(LOG_CLUSTERS, {**found, "status": {"versions": {**plain, **fields}}})


class TestTheReleaseThatBrokersRun:
    async def test_new_cluster_runs_the_operators_own_release(self) -> None:
        made = a_scene()
        await look(made)
        assert brokers_version(made.scene.term) == RELEASE
        assert made.template(0)["spec"]["containers"][0]["image"] == IMAGES[RELEASE]

    async def test_release_is_kept_under_newer_operator(self) -> None:
        """Before: a helm upgrade with another broker image rolled every broker of every cluster."""
        made = a_scene()
        await made_by_the_release_before(made)
        before = made.template(0), made.pod(0)
        await look(made)
        assert brokers_version(made.scene.term) == BEFORE
        assert (made.template(0), made.pod(0)) == before
        assert not made.image.grants
        assert rolls_of(made.scene.term).rolling is None

    async def test_release_is_the_one_that_the_status_pinned(self) -> None:
        made = a_scene()
        shown(made.scene, pinned=BEFORE)
        await look(made)
        assert brokers_version(made.scene.term) == BEFORE

    async def test_release_is_kept_when_no_longer_stated(self) -> None:
        made = a_scene(version=BEFORE)
        await look(made)
        made.scene.declare(brokers={"count": 1})
        await look(made)
        assert brokers_version(made.scene.term) == BEFORE

    async def test_release_is_recovered_from_stateful_sets(self) -> None:
        made = a_scene(version=BEFORE)
        await look(made)
        made.scene.declare(brokers={"count": 1})
        choices_of(made.scene.term).release = None
        await pinned_choices.read(made.scene.term)
        assert brokers_version(made.scene.term) == BEFORE

    async def test_release_is_not_guessed_without_api_server(self) -> None:
        made = a_scene()
        made.kube.fail = [Unavailable(503, "away")]
        with pytest.raises(Retry, match="release from LogCluster"):
            await pinned_choices.read(made.scene.term)
        assert choices_of(made.scene.term).release is None

    async def test_release_in_the_spec_changes_by_restarts(self) -> None:
        made = a_scene()
        await made_by_the_release_before(made)
        await look(made)
        made.scene.declare(brokers={"count": 1}, version=RELEASE)
        await look(made)
        assert list(made.image.grants) == [0]
        assert made.template(0)["spec"]["containers"][0]["image"] == IMAGES[RELEASE]

    async def test_unsupported_release_stalls_and_changes_nothing(
        self,
    ) -> None:
        made = a_scene()
        await made_by_the_release_before(made)
        before = made.template(0)
        made.scene.declare(brokers={"count": 1}, version="9.9")
        await look(made)
        stalled = made.scene.term.shown.notes["Stalled"]
        assert (stalled.status, stalled.reason) == ("True", "UnknownVersion")
        assert f"this operator has images for {BEFORE}, {RELEASE}" in stalled.message
        assert made.template(0) == before
        assert not made.image.grants

    @pytest.mark.parametrize("refused", ["9.9", BEFORE])
    async def test_refused_release_is_not_kept(self, refused: str) -> None:
        made = a_scene(append(an_image((0,)), FINALIZED))
        await look(made)
        made.scene.declare(brokers={"count": 1}, version=refused)
        await look(made)
        assert made.scene.term.shown.notes["Stalled"].status == "True"
        assert release_versions.versions(made.scene.term).pinned == RELEASE, (
            "the next operator reads this"
        )
        made.scene.declare(brokers={"count": 1})
        await look(made)
        assert "Stalled" not in made.scene.term.shown.notes
        assert brokers_version(made.scene.term) == RELEASE

    async def test_release_unable_to_read_log_stalls(
        self,
    ) -> None:
        made = a_scene(append(an_image((0,)), FINALIZED))
        await look(made)
        before = made.template(0)
        made.scene.declare(brokers={"count": 1}, version=BEFORE)
        await look(made)
        stalled = made.scene.term.shown.notes["Stalled"]
        assert stalled.reason == "VersionTooOld"
        assert "Set spec.version to 0.2 or newer" in stalled.message
        assert made.template(0) == before
        made.scene.declare(brokers={"count": 1}, version=RELEASE)
        await look(made)
        assert "Stalled" not in made.scene.term.shown.notes


class TestTheMetadataVersion:
    def test_metadata_version_is_pinned_only_when_stated(self) -> None:
        assert settings_of(a_cluster()).metadata_version is None
        assert settings_of(a_cluster(metadataVersion="0.1")).metadata_version == 1
        assert settings_of(a_cluster(metadataVersion=RELEASES[NEWEST])).metadata_version == NEWEST

    def test_unknown_metadata_version_counts_as_newest(self) -> None:
        assert settings_of(a_cluster(metadataVersion="9.9")).metadata_version == NEWEST + 1

    async def test_pinned_metadata_version_names_lacking_broker(self) -> None:
        made = a_scene(metadataVersion=RELEASES[NEWEST])
        made.deciding.settings = settings_of(a_cluster(metadataVersion=RELEASES[NEWEST]))
        self._heard(made, (1, 1), BEFORE)
        await look(made)
        (row,) = made.scene.term.shown.blocked["FinalizeMetadata"]
        assert (row.broker, row.reason) == (0, "NotUnderstood")
        assert row.until == "broker 0, which runs release 0.1, is upgraded"
        self._heard(made, UNDERSTOOD, RELEASE)
        await look(made)
        assert made.scene.term.shown.blocked.get("FinalizeMetadata", ()) == ()

    async def test_unpinned_metadata_version_is_not_shown_as_blocked(self) -> None:
        made = a_scene()
        self._heard(made, (1, 1), BEFORE)
        await look(made)
        assert made.scene.term.shown.blocked.get("FinalizeMetadata", ()) == ()

    async def test_metadata_version_below_finalised_is_refused(
        self,
    ) -> None:
        made = a_scene(append(an_image((0,)), FINALIZED), metadataVersion="0.1")
        await look(made)
        stalled = made.scene.term.shown.notes["Stalled"]
        assert stalled.reason == "MetadataVersionLowered"
        assert "Set it to 0.2, or remove it" in stalled.message
        assert made.image.metadata_version == 2

    async def test_unknown_metadata_version_lists_known_ones(self) -> None:
        made = a_scene(metadataVersion="9.9")
        await look(made)
        stalled = made.scene.term.shown.notes["Stalled"]
        assert stalled.reason == "UnknownMetadataVersion"
        assert ", ".join(dict.fromkeys(RELEASES.values())) in stalled.message

    async def test_metadata_version_and_releases_are_shown(self) -> None:
        made = a_scene(append(an_image((0, 1)), FINALIZED), brokers={"count": 2})
        self._heard(made, (1, 2), RELEASE)
        found = release_versions.versions(made.scene.term)
        assert (found.operator, found.pinned) == (RELEASE, RELEASE)
        assert found.brokers == {RELEASE: 1}, "broker 1 has said nothing in this term"
        assert (found.metadata, found.metadata_finalizable) == ("0.2", "0.2")

    async def test_unheard_brokers_are_omitted_from_status(self) -> None:
        """An API server makes null of a map that had entries and is applied again as {}."""
        made = a_scene(append(an_image((0, 1)), FINALIZED), brokers={"count": 2})
        found = msgspec.to_builtins(release_versions.versions(made.scene.term))
        assert "brokers" not in found
        assert found["pinned"] == RELEASE

    def _heard(self, made: Cluster, understood: tuple[int, int], release: str) -> None:
        made.deciding.soft.contacts[0] = Contact(
            broker_epoch=made.image.brokers[0].broker_epoch,
            last_ms=made.deciding.now_ms,
            metadata_versions=understood,
            release=release,
        )


class TestABrokerThatDoesNotUnderstandTheMetadata:
    async def test_broker_with_unknown_metadata_stalls_cluster(
        self,
    ) -> None:
        made = a_scene()
        contact = Contact(
            broker_epoch=made.image.brokers[0].broker_epoch,
            last_ms=made.deciding.now_ms,
            unknown_metadata="the record at 17 is of a newer release",
        )
        made.deciding.soft.contacts[0] = contact
        await look(made)
        told = made.scene.term.shown.notes["Stalled"]
        assert told.reason == release_versions.NOT_UNDERSTOOD
        assert "Broker 0 cannot apply newer metadata" in told.message
        assert "the record at 17 is of a newer release" in told.message
        contact.unknown_metadata = ""
        await look(made)
        assert "Stalled" not in made.scene.term.shown.notes


class TestTheChartsImages:
    ENV = {"PLIMSOLL_BROKER_IMAGE": "b:2", "PLIMSOLL_CONTROLLERS": "c:1"}  # noqa: RUF012

    def test_images_are_known_by_release(self) -> None:
        options = from_environment({**self.ENV, "PLIMSOLL_BROKER_IMAGES": f"0.1=b:1,{RELEASE}=b:2"})
        assert options.images == {"0.1": "b:1", RELEASE: "b:2"}
        assert from_environment(self.ENV).images == {RELEASE: "b:2"}

    def test_images_without_a_release_are_refused(self) -> None:
        with pytest.raises(BadOption, match="RELEASE=IMAGE"):
            from_environment({**self.ENV, "PLIMSOLL_BROKER_IMAGES": "b:1"})


def test_release_is_equal_in_chart_and_packages() -> None:
    root = Path(__file__).parents[2]
    chart = yaml.safe_load((root / "helm/plimsoll/Chart.yaml").read_text())
    values = yaml.safe_load((root / "helm/plimsoll/values.yaml").read_text())
    assert chart["appVersion"] == RELEASE
    assert chart["version"] == f"{RELEASE}.0"
    assert f'version = "{RELEASE}.0"' in (root / "pyproject.toml").read_text()
    assert list(values["images"]["broker"]) == ["0.2", RELEASE]
