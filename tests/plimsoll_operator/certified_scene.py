"""A LogCluster whose only listener asks for certificates, and a User who has one."""

from __future__ import annotations

import base64
from typing import Any

from tests.plimsoll_operator.builders import a_cluster_body, an_image, replay
from tests.plimsoll_operator.declared_users import KEY, declared_user
from tests.plimsoll_operator.terms import Deciding, Scene

from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.cluster.records import ListenersConfigured, MetadataVersionFinalized
from plimsoll_core.security.client_certificates import (
    UserCertificate,
)
from plimsoll_operator.api import labels
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.api.user import UserStatus
from plimsoll_operator.kube.resources import CONFIG_MAPS, LOG_CLUSTERS, SECRETS, USERS
from plimsoll_operator.pki.authority import (
    describe,
)
from plimsoll_operator.reconcile.cluster import authorities
from plimsoll_operator.reconcile.shared.pinned_choices import manifest_context
from plimsoll_operator.reconcile.stall_causes import StallSource
from plimsoll_operator.reconcile.user import reconcile as user
from plimsoll_operator.status.status_writer import Target

LISTENERS = [{"name": "tls", "port": 9094, "tls": {}, "authentication": ["Tls"]}]
ASKS = Listener(name="tls", port=9094, authentication=("Tls",), tls_version_min="1.2")
BEGIN_MS = 1_800_000_000_000


class Certified(Scene):
    """A LogCluster whose only listener asks for certificates, at a time that the test says."""

    def __init__(self, **spec: Any) -> None:
        image = replay(
            an_image(),
            MetadataVersionFinalized(cause="t", metadata_version=3),
            ListenersConfigured(cause="t", listeners=(ASKS,)),
        )
        self.decided = Deciding(image)
        super().__init__(image, self.decided, **{"listeners": LISTENERS, **spec})
        self.time_ms = BEGIN_MS
        self.term.now_ms = lambda: self.time_ms

    def apply(self, **spec: Any) -> None:
        stated = {"authentication": {"tls": {}}, **spec}
        stored = self.kube.put(USERS, declared_user(**stated))
        assert self.objects.users.put(stored) is not None

    async def look(self) -> None:
        cluster, context = self.term.cluster, manifest_context(self.term)
        assert cluster is not None
        assert context is not None
        await self.run_part(authorities.reconcile, cluster, context)

    async def reconciled(self) -> Condition:
        await self.look()
        await self.run(user.reconcile, KEY)
        _, status = self.term.shown.statuses[Target(USERS, *KEY)]
        assert isinstance(status, UserStatus)
        return status.conditions[0]

    def secret(self, name: str = "writer-kafka") -> dict[str, bytes]:
        data = self.kube.find(SECRETS, KEY[0], name)["data"]
        return {key: base64.b64decode(value) for key, value in data.items()}

    @property
    def authority(self) -> dict[str, bytes]:
        return self.secret(labels.client_authority(self.term.cluster_id))

    def ask(self, value: str) -> None:
        """For the next step towards another authority."""
        body = a_cluster_body(listeners=LISTENERS)
        body["metadata"]["annotations"] = {labels.ROTATE_CLIENTS: value}
        self.kube.put(LOG_CLUSTERS, body)
        self.objects.clusters.put(body)

    @property
    def committed(self) -> tuple[UserCertificate, ...]:
        row = self.decided.image.security.certificates.get("writer")
        return () if row is None else row.certificates

    @property
    def shown(self) -> str:
        """The fingerprint of what the Secret holds."""
        return describe(self.secret()["tls.crt"]).sha256

    @property
    def believed(self) -> dict[str, tuple[bytes, ...]]:
        return {one.name: one.certificates for one in self.decided.image.security.authorities}

    @property
    def stalled(self) -> str:
        cause = self.term.shown.stall_causes.get(StallSource.CLIENT_CERTIFICATES)
        return "" if cause is None else cause.message

    def give(self, data: dict[str, str], name: str = "corp-ca") -> None:
        meta = {"name": name, "namespace": KEY[0]}
        self.kube.put(CONFIG_MAPS, {"metadata": meta, "data": data})
