"""The mode inside where the spec states none: decided once, and kept."""

from typing import Any

import msgspec
import pytest
from tests.plimsoll_operator.builders import an_image, finalised
from tests.plimsoll_operator.terms import Deciding, Scene

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_core.cluster.record_versions import NEWEST
from plimsoll_core.messages.brokers import SetInsideMode
from plimsoll_core.messages.requests import SetMembers
from plimsoll_core.security.inside import Inside, InsideMode
from plimsoll_operator.api.cluster_status import LogClusterStatus
from plimsoll_operator.kube.errors import Unavailable
from plimsoll_operator.kube.resources import LOG_CLUSTERS
from plimsoll_operator.reconcile.cluster import inside, logcluster_status
from plimsoll_operator.reconcile.cluster import reconcile as cluster
from plimsoll_operator.reconcile.cluster.access import secure_condition
from plimsoll_operator.reconcile.shared import pinned_choices
from plimsoll_operator.reconcile.shared.pinned_choices import choices_of, manifest_context
from plimsoll_operator.reconcile.stall_causes import Cause, StallSource
from plimsoll_operator.reconcile.work_queue import Retry

NEW = finalised(an_image(()), 1)
"""No broker has ever registered."""
OLD = finalised(an_image((0, 1)), NEWEST)


def a_scene(image: ClusterImage, **spec: Any) -> Scene:
    return Scene(image, Deciding(image), **spec)


def another_term(scene: Scene, image: ClusterImage) -> Scene:
    """Of an operator that finds the same objects, and so much of the log."""
    made = a_scene(image)
    made.kube = made.term.kube = scene.kube  # type: ignore[assignment]
    return made


def status(scene: Scene) -> dict[str, Any]:
    found: dict[str, Any] = scene.kube.find(LOG_CLUSTERS, "kafka", "main").get("status") or {}
    return found


def pinned(scene: Scene) -> str:
    return str(status(scene)["certificates"]["internal"]["pinned"])


async def decided(scene: Scene) -> InsideMode:
    term = scene.term
    await pinned_choices.read(term)
    assert term.cluster is not None
    return await scene.run_part(inside.decide, term.cluster)


async def test_new_cluster_shows_required_before_its_members() -> None:
    scene = a_scene(NEW)
    seen: list[str] = []
    ask = scene.controller.request

    async def noting(request: Any) -> Any:
        if isinstance(request, SetMembers):
            seen.append(pinned(scene))
        return await ask(request)

    scene.controller.request = noting  # type: ignore[method-assign]
    await pinned_choices.read(scene.term)
    await scene.run(cluster.reconcile)
    assert seen == ["Required"]


async def test_new_cluster_has_no_members_before_status() -> None:
    scene = a_scene(NEW)
    await pinned_choices.read(scene.term)
    scene.kube.fail = [Unavailable(503, "away")]
    with pytest.raises(Retry, match="cannot write the internal TLS mode"):
        await scene.run(cluster.reconcile)

    async def nothing() -> None:
        pass

    scene.term.write_status = nothing
    with pytest.raises(Retry, match="shows the internal TLS mode"):
        await scene.run(cluster.reconcile)
    assert scene.controller.asked == []


async def test_operator_death_before_commit_leaves_decision() -> None:
    scene = a_scene(NEW)
    assert await decided(scene) is InsideMode.REQUIRED
    # Brokers have come meanwhile, of a release that knows nothing of it.
    old = another_term(scene, finalised(an_image((0, 1)), 1))
    assert await decided(old) is InsideMode.REQUIRED


async def test_lost_status_is_restored_from_the_log() -> None:
    image = msgspec.structs.replace(OLD, inside=Inside(mode=InsideMode.PERMISSIVE))
    scene = a_scene(image)
    assert await decided(scene) is InsideMode.REQUIRED


async def test_status_that_nobody_can_read_counts_as_lost() -> None:
    scene = a_scene(OLD)
    found = scene.kube.find(LOG_CLUSTERS, "kafka", "main")
    scene.kube.put(LOG_CLUSTERS, {**found, "status": {"certificates": {"internal": {}}}})
    assert await decided(scene) is InsideMode.OFF


async def test_old_cluster_stays_open() -> None:
    scene = a_scene(OLD)
    await pinned_choices.read(scene.term)
    await scene.run(cluster.reconcile)
    assert not any(isinstance(asked, SetInsideMode) for asked in scene.controller.asked)
    assert choices_of(scene.term).inside is InsideMode.OFF
    assert scene.term.image.inside.mode is InsideMode.OFF
    await scene.term.write_status()
    assert status(scene)["certificates"] == {"internal": {"mode": "Off", "pinned": "Off"}}


@pytest.mark.parametrize("mode", ["Off", "Permissive", "Required"])
async def test_unstated_mode_stays_as_it_was(mode: str) -> None:
    scene = a_scene(OLD, certificates={"internal": {"mode": mode}})
    assert await decided(scene) is InsideMode(mode)
    await scene.term.write_status()
    scene.declare()
    assert await decided(scene) is InsideMode(mode)


async def test_new_cluster_may_state_that_it_is_open() -> None:
    scene = a_scene(NEW, certificates={"internal": {"mode": "Off"}})
    assert await decided(scene) is InsideMode.OFF


async def test_older_crd_does_not_delay_the_cluster() -> None:
    """It drops what it does not know of a status."""
    scene = a_scene(NEW)

    async def pruned() -> None:
        found = scene.kube.find(LOG_CLUSTERS, "kafka", "main")
        scene.kube.put(LOG_CLUSTERS, {**found, "status": {"versions": {}}})

    scene.term.write_status = pruned
    assert await decided(scene) is InsideMode.REQUIRED


async def test_incapable_brokers_are_awaited_without_stall() -> None:
    """A metadata version that is held back, by its brokers or by its owner."""
    scene = a_scene(NEW, metadataVersion="0.1")
    assert await decided(scene) is InsideMode.REQUIRED
    scene.controller.image = finalised(an_image((0, 1)), 1)
    term = scene.term
    assert term.cluster is not None
    assert manifest_context(term) is not None
    wanted = await decided(scene)
    await scene.run_part(inside.reconcile, term.cluster, manifest_context(term), wanted)
    assert term.image.inside.mode is InsideMode.OFF
    assert not term.shown.stall_causes
    shown = secure_condition(term.image, inside.waits_of(term))
    assert shown is not None
    assert shown.status == "False"
    assert "metadata version" in inside.waits_of(term)


@pytest.mark.parametrize("led", [True, False], ids=["a new term", "no log"])
async def test_early_status_write_keeps_the_choices(led: bool) -> None:
    """The status is applied as a whole: what is not stated is taken away."""
    scene = a_scene(NEW)
    assert await decided(scene) is InsideMode.REQUIRED
    image = OLD if led else ClusterImage(cluster_id=OLD.cluster_id)
    later = another_term(scene, image)
    later.objects.clusters.put(scene.kube.find(LOG_CLUSTERS, "kafka", "main"))
    later.controller.stalled = None  # type: ignore[attr-defined]
    later.effects.stall(
        StallSource.LEADERSHIP, Cause(reason="ApiUnavailable", message="It is away.")
    )
    draft = logcluster_status.render(later.term, later.term.key)
    assert draft is not None
    shown = draft.status
    assert isinstance(shown, LogClusterStatus)
    assert shown.certificates is not None
    assert shown.certificates.internal.pinned == "Required"
