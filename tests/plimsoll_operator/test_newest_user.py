"""A leader whose watch is behind lets no disabled user in again."""

from __future__ import annotations

import pytest
from tests.plimsoll_operator.declared_users import KEY, Users

from plimsoll_operator.kube.errors import Unavailable
from plimsoll_operator.kube.resources import USERS
from plimsoll_operator.reconcile.work_queue import Retry


def logs_in(scene: Users) -> bool:
    return scene.decided.image.security.credential("writer", "SCRAM-SHA-512") is not None


async def disabled_and_seen_as_of_before() -> Users:
    scene = Users()
    scene.apply()
    await scene.reconciled()
    before = scene.kube.find(USERS, *KEY)
    scene.apply(disabled=True)
    assert (await scene.reconciled()).reason == "Disabled"
    scene.objects.users.put(before)
    return scene


async def test_late_watch_does_not_readmit_disabled_user() -> None:
    scene = await disabled_and_seen_as_of_before()
    with pytest.raises(Retry):
        await scene.reconciled()
    assert not logs_in(scene)
    scene.apply()  # its owner lets it in, and the watch shows that
    assert (await scene.reconciled()).reason == "Serving"
    assert logs_in(scene)


async def test_user_deleted_meanwhile_is_not_readmitted() -> None:
    scene = await disabled_and_seen_as_of_before()
    scene.kube.drop(USERS, *KEY)
    with pytest.raises(Retry):
        await scene.reconciled()
    assert not logs_in(scene)


async def test_disabled_user_stays_out_without_api_server() -> None:
    scene = await disabled_and_seen_as_of_before()
    scene.kube.fail = [Unavailable(0, "gone")]
    with pytest.raises(Retry):
        await scene.reconciled()
    assert not logs_in(scene)


async def test_enabled_user_costs_no_object_read() -> None:
    scene = Users()
    scene.apply()
    await scene.reconciled()
    scene.kube.calls.clear()
    await scene.reconciled()
    assert not [call for call in scene.kube.calls if call[1] == USERS.plural]
