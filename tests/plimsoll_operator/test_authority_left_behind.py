"""The authority of listeners outlives its LogCluster: what the next one of that name does."""

from __future__ import annotations

from uuid import UUID

from tests.plimsoll_operator.test_listeners import TLS, Declared

from plimsoll_operator.api import labels
from plimsoll_operator.kube.resources import CONFIG_MAPS, SECRETS
from plimsoll_operator.pki.authority import signed_by


async def test_authority_of_deleted_namesake_is_left_alone() -> None:
    deleted, made = Declared(TLS), Declared(TLS)
    await deleted.look()
    kept = deleted.secret(labels.listener_authority(deleted.deciding.image.cluster_id))
    kept["metadata"]["name"] = labels.listener_authority(UUID(int=9))
    made.scene.kube.put(SECRETS, kept)
    shown = deleted.scene.kube.objects["configmaps", "kafka", "main-listener-ca"]
    made.scene.kube.put(CONFIG_MAPS, shown)
    await made.look()
    assert made.stalled == ""
    assert made.trusted != deleted.trusted
    assert signed_by(made.pair(0).certificate, made.trusted)
    assert made.secret(kept["metadata"]["name"])["data"] == kept["data"]
