"""A user that a live object declares keeps its login: objects are renamed, in either order."""

from __future__ import annotations

import base64
from typing import Any

from tests.plimsoll_operator.declared_users import KEY, Users, declared_user

from plimsoll_core.quotas.state import QuotaEntity
from plimsoll_core.security.state import SecurityState
from plimsoll_operator.api.user import UserStatus
from plimsoll_operator.kube.resources import SECRETS, USERS
from plimsoll_operator.reconcile.user import reconcile as user
from plimsoll_operator.status.record_events import occurrences
from plimsoll_operator.status.status_writer import Target

NEW = (KEY[0], "new-name")
QUOTAS = {"producerBytesPerSecond": "1000"}
GRACE_MS = 300_000


class Renaming(Users):
    """`writer` is declared by the object `writer`, with rules, a password and a quota."""

    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 1_000_000
        self.term.now_ms = lambda: self.now_ms
        self.begun = self.decided.image

    @classmethod
    async def begin(cls, **spec: Any) -> Renaming:
        scene = cls()
        scene.apply(quotas=QUOTAS, **spec)
        await scene.reconciled()
        scene.begun = scene.decided.image
        scene.decided.records.clear()
        return scene

    def apply_new(self, **spec: Any) -> None:
        body = declared_user(userName="writer", quotas=QUOTAS, **spec)
        body["metadata"] = {"name": NEW[1], "namespace": NEW[0]}
        self.objects.users.put(self.kube.put(USERS, body))

    def delete_old(self) -> None:
        self.kube.drop(USERS, *KEY)
        self.objects.users.drop(KEY)

    async def reason(self, key: tuple[str, str] = NEW) -> str:
        await self.run(user.reconcile, key)
        _, status = self.term.shown.statuses[Target(USERS, *key)]
        assert isinstance(status, UserStatus)
        return status.conditions[0].reason

    def password(self, name: str) -> str:
        data = self.kube.find(SECRETS, KEY[0], name)["data"]
        return base64.b64decode(data["password"]).decode()

    @property
    def security(self) -> SecurityState:
        return self.decided.image.security

    def holder(self) -> str:
        return self.security.users["writer"].object.name

    def told(self) -> list[str]:
        found = occurrences(self.begun, self.decided.image, self.decided.records)
        return [one.reason for one in found]


async def test_object_before_rename_takes_user_with_password():
    scene = await Renaming.begin()
    password, rules = scene.secret()["password"], dict(scene.security.acls)
    scene.apply_new()
    assert await scene.reason() == "UserNameTaken"
    assert scene.password("new-name-kafka") == password, "the other Secret goes with its object"
    scene.kube.drop(SECRETS, KEY[0], "writer-kafka")
    scene.delete_old()
    await scene.run(user.reconcile, KEY)
    assert set(scene.security.acls) == set(rules), "at no moment it has fewer rights"
    assert await scene.reason() == "Serving"
    assert scene.holder() == "new-name"
    assert scene.knows(password)
    assert scene.password("new-name-kafka") == password
    assert scene.decided.image.quotas.rows[QuotaEntity(user="writer")].values.producer_byte_rate
    scene.now_ms += 10 * GRACE_MS
    for key in (KEY, NEW):
        await scene.run(user.reconcile, key)
    assert scene.knows(password)
    assert set(scene.security.acls) == set(rules)
    assert all(len(owners) == 1 for owners in scene.security.acls.values())
    assert not scene.security.removals
    assert scene.told().count("UserHandedOver") == 1


async def test_object_after_rename_keeps_password_for_grace():
    """The Secret went with its object, so that there is another password."""
    scene = await Renaming.begin()
    old = scene.credential().stored_key
    scene.kube.drop(SECRETS, KEY[0], "writer-kafka")
    scene.delete_old()
    await scene.run(user.reconcile, KEY)
    assert scene.security.users["writer"].gone_since_ms is not None
    scene.apply_new()
    assert await scene.reason() == "Serving"
    assert scene.holder() == "new-name"
    assert scene.knows(scene.password("new-name-kafka"))
    previous = scene.credential().previous
    assert previous is not None
    assert previous.stored_key == old
    assert previous.until_ms == scene.now_ms + GRACE_MS
    assert "User" + "Removed" not in [type(r).__name__ for r in scene.decided.records]


async def test_secret_of_same_name_keeps_its_password():
    scene = await Renaming.begin(secretName="login")
    password = scene.password("login")
    scene.delete_old()
    scene.apply_new(secretName="login")
    assert await scene.reason() == "Serving"
    assert scene.password("login") == password
    assert scene.knows(password)
    (owner,) = scene.kube.find(SECRETS, KEY[0], "login")["metadata"]["ownerReferences"]
    assert owner["name"] == "new-name"
    assert scene.credential().previous is None


async def test_recreated_object_keeps_secret_and_password():
    scene = await Renaming.begin()
    password = scene.secret()["password"]
    scene.delete_old()
    scene.apply(quotas=QUOTAS)
    assert (await scene.reconciled()).reason == "Serving"
    assert scene.secret()["password"] == password
    assert scene.knows(password)


async def test_live_users_secret_is_taken_by_nobody():
    scene = await Renaming.begin(secretName="login")
    scene.apply_new(secretName="login")
    assert await scene.reason() == "SecretForeign"


async def test_heir_that_states_less_has_less():
    scene = await Renaming.begin()
    scene.apply_new(acls=[], authentication=None)
    scene.delete_old()
    assert await scene.reason() != "UserNameTaken"
    assert scene.holder() == "new-name"
    assert not scene.security.acls
    assert not scene.security.credentials


async def test_object_of_another_namespace_inherits_no_login():
    scene = await Renaming.begin()
    body = declared_user(userName="writer", clusterRef={"name": "main", "namespace": "kafka"})
    body["metadata"] = {"name": "writer", "namespace": "other"}
    scene.objects.users.put(scene.kube.put(USERS, body))
    scene.delete_old()
    await scene.run(user.reconcile, KEY)
    assert scene.security.users["writer"].gone_since_ms is not None
    assert scene.security.users["writer"].object.namespace == KEY[0]
