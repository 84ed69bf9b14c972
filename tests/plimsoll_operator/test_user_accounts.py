"""A User object that is a ServiceAccount: its pods log in with their tokens."""

from __future__ import annotations

from tests.plimsoll_operator.test_user_handler import KEY, Users

from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.security.acl import AclOperation, ResourceType
from plimsoll_core.security.acl_index import AclQuestion
from plimsoll_operator.api.user import UserStatus
from plimsoll_operator.kube.resources import USERS
from plimsoll_operator.status.status_writer import Target


async def test_service_account_user_has_rights_without_secret() -> None:
    scene = Users(Listener(name="pods", port=9094, authentication=("ServiceAccount",)))
    scene.apply(authentication={"serviceAccount": {"name": "orders"}})
    ready = await scene.reconciled()
    assert (ready.status, ready.reason) == ("True", "Serving")
    principal = "User:system:serviceaccount:kafka:orders"
    _, status = scene.term.shown.statuses[Target(USERS, *KEY)]
    assert isinstance(status, UserStatus)
    assert (status.principal, status.secret) == (principal, None)
    assert scene.made("secrets") == []
    question = AclQuestion(principal, "h", AclOperation.READ, ResourceType.TOPIC, "shop.orders")
    assert scene.decided.image.security.allows(question)


async def test_service_account_user_names_missing_listener() -> None:
    scene = Users()
    scene.apply(authentication={"serviceAccount": {"name": "orders"}})
    assert (await scene.reconciled()).reason == "ListenerMissing"
