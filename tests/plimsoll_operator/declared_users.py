"""A LogCluster with a User object `writer`, and what becomes of it."""

from __future__ import annotations

import base64
from typing import Any

from tests.plimsoll_operator.builders import an_image, replay
from tests.plimsoll_operator.terms import Deciding, Scene

from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.cluster.records import ListenersConfigured, MetadataVersionFinalized
from plimsoll_core.security.scram import ScramCredential, keys_of, salted_password
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.api.user import UserStatus
from plimsoll_operator.kube.resources import SECRETS, USERS
from plimsoll_operator.reconcile.user import reconcile as user
from plimsoll_operator.status.status_writer import Target

KEY = ("kafka", "writer")
SECURED = Listener(name="secured", port=9094, authentication=("ScramSha512",))
RULES = [
    {"resource": {"type": "Topic", "name": "shop.", "pattern": "Prefixed"}, "operations": ["Read"]},
    {"resource": {"type": "Cluster"}, "operations": ["Describe"]},
]


def declared_user(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "plimsoll.dev/v1alpha1",
        "kind": "User",
        "metadata": {"name": KEY[1], "namespace": KEY[0]},
        "spec": {
            "clusterRef": {"name": "main"},
            "authentication": {"scram": {}},
            "acls": RULES,
            **spec,
        },
    }


class Users(Scene):
    """A cluster of the newest metadata version with a listener that asks for a login."""

    def __init__(self, *listeners: Listener) -> None:
        image = replay(
            an_image(),
            MetadataVersionFinalized(cause="t", metadata_version=3),
            ListenersConfigured(cause="t", listeners=listeners or (SECURED,)),
        )
        self.decided = Deciding(image)
        super().__init__(image, self.decided)

    def apply(self, **spec: Any) -> None:
        stored = self.kube.put(USERS, declared_user(**spec))
        assert self.objects.users.put(stored) is not None

    async def reconciled(self) -> Condition:
        await self.run(user.reconcile, KEY)
        _, status = self.term.shown.statuses[Target(USERS, *KEY)]
        assert isinstance(status, UserStatus)
        return status.conditions[0]

    def secret(self) -> dict[str, str]:
        data = self.kube.find(SECRETS, KEY[0], "writer-kafka")["data"]
        return {name: base64.b64decode(value).decode() for name, value in data.items()}

    def credential(self, mechanism: str = "SCRAM-SHA-512") -> ScramCredential:
        return self.decided.image.security.credentials["writer", mechanism]  # type: ignore[index]

    def knows(self, password: str) -> bool:
        """Whether the committed credential is of the password."""
        one = self.credential()
        salted = salted_password(one.mechanism, password, one.salt, one.iterations)
        return keys_of(one.mechanism, salted) == (one.stored_key, one.server_key)
