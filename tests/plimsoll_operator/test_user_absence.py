"""User objects that are gone: proof first, a grace, and no surprise where many go at once."""

from __future__ import annotations

import re
from typing import Any
from unittest.mock import AsyncMock

import pytest
from msgspec.structs import replace
from tests.plimsoll_operator.builders import a_cluster_body
from tests.plimsoll_operator.declared_users import KEY, Users, declared_user

from plimsoll_core.cluster.model import HistoryRestored
from plimsoll_core.ids import MetadataOffset
from plimsoll_core.security.state import NOTHING
from plimsoll_operator.api.labels import ACKNOWLEDGE, ACKNOWLEDGE_USERS
from plimsoll_operator.kube.resources import CRDS, NAMESPACES, SECRETS, USERS
from plimsoll_operator.leadership.led_cluster import LedCluster
from plimsoll_operator.reconcile.reconcile_term import Task, Work
from plimsoll_operator.reconcile.registry import all_work
from plimsoll_operator.reconcile.user import reconcile as user
from plimsoll_operator.reconcile.work_queue import ReconcileQueue, Retry
from plimsoll_operator.status.events import Occurrence


async def gone(scene: Users) -> None:
    scene.kube.drop(USERS, *KEY)
    scene.objects.users.drop(KEY)
    assert Work(Task.USER, KEY) in list(all_work(scene.term))
    await scene.run(user.reconcile, KEY)


async def test_deleted_user_loses_rights_after_grace() -> None:
    scene, now_ms = Users(), [1_000_000]
    scene.term.now_ms = lambda: now_ms[0]
    told: list[Occurrence] = []
    scene.effects.tell = told.append
    scene.apply()
    await scene.reconciled()
    await gone(scene)
    assert [one.reason for one in told] == ["UserPendingDeletion"]
    assert "writer can log in for 300 s more" in told[0].message
    now_ms[0] += 299_999
    await scene.run(user.reconcile, KEY)
    assert scene.decided.image.security.users
    assert scene.decided.image.security.acls
    now_ms[0] += 1
    await scene.run(user.reconcile, KEY)
    security = scene.decided.image.security
    assert not security.users
    assert not security.credentials
    assert not security.acls


async def test_user_without_grace_goes_when_proven_absent() -> None:
    scene = Users()
    scene.declare(users={"deletion": {"graceSeconds": 0}})
    scene.apply()
    await scene.reconciled()
    await gone(scene)
    assert not scene.decided.image.security.users


async def test_replacing_object_needs_no_grace() -> None:
    scene = Users()
    scene.apply()
    await scene.reconciled()
    before = scene.decided.image.security.users["writer"].object
    scene.kube.drop(SECRETS, KEY[0], "writer-kafka")  # it goes with its object
    scene.kube.drop(USERS, *KEY)
    scene.objects.users.drop(KEY)
    await scene.run(user.reconcile, KEY)
    scene.apply()
    assert (await scene.reconciled()).status == "True"
    assert scene.decided.image.security.users["writer"].object.uid != before.uid
    security = scene.decided.image.security
    assert security.users["writer"].gone_since_ms is None
    assert not security.removals, "nobody counts what has come back"
    assert scene.knows(scene.secret()["password"])


async def test_mass_user_deletion_needs_confirmation() -> None:
    scene, now_ms = Users(), [1_795_550_000_000]
    scene.term.now_ms = lambda: now_ms[0]
    users = {"deletion": {"graceSeconds": 60, "maxPerHour": 1}}
    scene.declare(users=users)
    keys = [(KEY[0], name) for name in ("one", "two")]
    body = scene.kube.put(USERS, declared_user(authentication=None))
    for namespace, name in keys:
        other = {**body, "metadata": {"name": name, "namespace": namespace}}
        scene.objects.users.put(scene.kube.put(USERS, other))
        await scene.run(user.reconcile, (namespace, name))
    for key in keys:
        scene.kube.drop(USERS, *key)
        scene.objects.users.drop(key)
        await scene.run(user.reconcile, key)
    stalled = scene.term.shown.notes["Stalled"]
    assert (stalled.status, stalled.reason) == ("True", "MassDeletion")
    assert "2 User objects of namespace kafka disappeared within an hour (one, two)" in (
        stalled.message
    )
    now_ms[0] += 61_000
    for key in keys:
        await scene.run(user.reconcile, key)
    assert set(scene.decided.image.security.users) == {"one", "two"}
    (stamp,) = re.findall(r"acknowledge-user-deletion=(\S+)\.", stalled.message)
    acknowledged = a_cluster_body(users=users)
    when = stamp.removeprefix("kafka@")
    for of_others in ({ACKNOWLEDGE: when}, {ACKNOWLEDGE_USERS: f"shop@{when}"}):
        acknowledged["metadata"]["annotations"] = of_others
        scene.objects.clusters.put(acknowledged)
        for key in keys:
            await scene.run(user.reconcile, key)
        assert set(scene.decided.image.security.users) == {"one", "two"}
    acknowledged["metadata"]["annotations"] = {ACKNOWLEDGE_USERS: f"shop@{when}, {stamp}"}
    scene.objects.clusters.put(acknowledged)
    for key in keys:
        await scene.run(user.reconcile, key)
    assert not scene.decided.image.security.users
    assert "Stalled" not in scene.term.shown.notes


async def test_user_missing_since_restore_keeps_login() -> None:
    """etcd was restored to before it was applied; the metadata came from brokers' copies."""
    scene, now_ms = Users(), [1_795_550_000_000]
    scene.term.now_ms = lambda: now_ms[0]
    scene.apply()
    await scene.reconciled()
    row = HistoryRestored(at_ms=now_ms[0], end_offset=MetadataOffset(1))
    scene.decided.image = replace(scene.decided.image, restored=row)
    await gone(scene)
    stalled = scene.term.shown.notes["Stalled"]
    assert stalled.reason == "MassDeletion"
    assert "User objects of namespace kafka are missing since (writer)." in stalled.message
    now_ms[0] += 301_000
    await scene.run(user.reconcile, KEY)
    assert "writer" in scene.decided.image.security.users
    (stamp,) = re.findall(r"acknowledge-user-deletion=(\S+)\.", stalled.message)
    acknowledged = a_cluster_body()
    acknowledged["metadata"]["annotations"] = {ACKNOWLEDGE_USERS: stamp}
    scene.objects.clusters.put(acknowledged)
    await scene.run(user.reconcile, KEY)
    assert not scene.decided.image.security.users
    assert "Stalled" not in scene.term.shown.notes


@pytest.mark.parametrize("going", [(CRDS, None, "users.plimsoll.dev"), (NAMESPACES, None, "kafka")])
async def test_user_deleted_with_crd_or_namespace_stays(going: Any) -> None:
    scene = Users()
    scene.apply()
    await scene.reconciled()
    scene.kube.set_metadata(*going, deletionTimestamp="2026-01-01T00:00:00Z")
    await gone(scene)
    assert "writer" in scene.decided.image.security.users


@pytest.mark.parametrize("again", [False, True])
async def test_user_of_reapplied_crd_stays(again: bool) -> None:
    """A CRD that was deleted takes all Users with it, and one that is applied again brings none
    back: five minutes later nobody could log in.  `again`: another operator leads by then."""
    scene = Users()
    scene.apply()
    await scene.reconciled()
    uid = next(iter(scene.decided.image.security.users.values())).object.uid
    late = {"uid": "crd-2", "creationTimestamp": "2026-02-01T00:00:00Z"}
    scene.kube.set_metadata(CRDS, None, "users.plimsoll.dev", **late)
    if again:
        scene = under_the_next_operator(scene)
    scene.kube.said_ms = 1_000_000
    scene.kube.drop(USERS, *KEY)
    scene.objects.users.drop(KEY)
    for _ in range(2):
        await scene.run(user.reconcile, KEY)
        scene.kube.said_ms += 300_000
    assert "writer" in scene.decided.image.security.users
    scene.term.seen_uids[uid] = "2026-02-01T00:00:01Z"  # seen under the new one, and then deleted
    for _ in range(2):
        await scene.run(user.reconcile, KEY)
        scene.kube.said_ms += 300_000
    assert "writer" not in scene.decided.image.security.users


async def test_user_that_is_only_not_seen_stays() -> None:
    scene = Users()
    scene.apply()
    await scene.reconciled()
    scene.objects.users.drop(KEY)
    await scene.run(user.reconcile, KEY)
    assert "writer" in scene.decided.image.security.users


async def test_absence_that_cannot_be_read_is_no_proof() -> None:
    scene = Users()
    scene.apply()
    await scene.reconciled()
    scene.kube.drop(CRDS, None, "users.plimsoll.dev")
    scene.objects.users.drop(KEY)
    with pytest.raises(Retry, match=r"cannot confirm that User .* is gone"):
        await scene.run(user.reconcile, KEY)
    assert "writer" in scene.decided.image.security.users


async def test_user_reapplied_disabled_is_disconnected() -> None:
    scene = Users()
    scene.declare(users={"deletion": {"maxPerHour": 0}})
    scene.apply()
    await scene.reconciled()
    await gone(scene)
    assert (
        "with spec.disabled: true a user is cut off at once"
        in scene.term.shown.notes["Stalled"].message
    )
    assert scene.decided.image.security.credential("writer", "SCRAM-SHA-512")
    scene.apply(disabled=True)
    assert (await scene.reconciled()).reason == "Disabled"
    assert not scene.decided.image.security.credential("writer", "SCRAM-SHA-512")
    assert "Stalled" not in scene.term.shown.notes


async def test_disabled_user_goes_with_its_object_at_once() -> None:
    scene = Users()
    scene.declare(users={"deletion": {"maxPerHour": 0}})
    scene.apply(disabled=True)
    await scene.reconciled()
    await gone(scene)
    assert not scene.decided.image.security.users


def under_the_next_operator(scene: Users) -> Users:
    """Another term: what is committed, and the objects as they are."""
    found = Users(*scene.decided.image.listeners)
    found.decided.image = scene.decided.image
    found.kube, found.term.kube = scene.kube, scene.kube
    found.term.now_ms = scene.term.now_ms
    return found


async def test_grace_continues_under_next_operator() -> None:
    scene, now_ms = Users(), [1_000_000]
    scene.term.now_ms = lambda: now_ms[0]
    scene.apply()
    await scene.reconciled()
    await gone(scene)
    now_ms[0] += 200_000
    scene = under_the_next_operator(scene)
    told: list[Occurrence] = []
    scene.effects.tell = told.append
    await scene.run(user.reconcile, KEY)
    assert scene.decided.image.security.users
    assert not told, "it was told when it began"
    now_ms[0] += 100_000
    await scene.run(user.reconcile, KEY)
    assert not scene.decided.image.security.users


@pytest.mark.parametrize("ahead_ms", [240_000, -240_000])
async def test_grace_is_independent_of_host_clocks(ahead_ms: int) -> None:
    """By the API server's clock, which all operators have: one whose host was four minutes ahead
    ended the grace after one, one that was behind began it anew."""
    scene, host_ms, server_ms = Users(), [1_000_000_000], 1_000_000_000
    scene.term.now_ms = lambda: host_ms[0]
    scene.kube.said_ms = server_ms
    scene.apply()
    await scene.reconciled()
    await gone(scene)
    scene = under_the_next_operator(scene)
    host_ms[0] += 60_000 + ahead_ms
    scene.kube.said_ms = server_ms + 60_000
    await scene.run(user.reconcile, KEY)
    assert scene.decided.image.security.users
    scene.kube.said_ms = server_ms + 299_999
    await scene.run(user.reconcile, KEY)
    assert scene.decided.image.security.users
    scene.kube.said_ms = server_ms + 300_000
    await scene.run(user.reconcile, KEY)
    assert not scene.decided.image.security.users


async def test_grace_restarts_under_slower_clock() -> None:
    scene, now_ms = Users(), [90_000_000]
    scene.term.now_ms = lambda: now_ms[0]
    scene.apply()
    await scene.reconciled()
    await gone(scene)
    now_ms[0] = 1_000_000
    scene = under_the_next_operator(scene)
    await scene.run(user.reconcile, KEY)
    now_ms[0] += 300_000
    await scene.run(user.reconcile, KEY)
    assert not scene.decided.image.security.users


async def test_returned_object_regains_its_whole_grace() -> None:
    scene = Users()
    scene.apply()
    await scene.reconciled()
    stored = scene.kube.find(USERS, *KEY)
    await gone(scene)
    scene = under_the_next_operator(scene)
    scene.objects.users.put(scene.kube.put(USERS, stored))
    row = scene.decided.image.security.users["writer"]
    assert row.gone_since_ms is not None
    again = {**stored, "metadata": {**stored["metadata"], "uid": row.object.uid}}
    scene.objects.users.put(again)
    await scene.run(user.reconcile, KEY)
    assert scene.decided.image.security.users["writer"].gone_since_ms is None


async def users_go(scene: Users, *keys: tuple[str, str]) -> None:
    """Users of no login and no rules are made, and their objects go."""
    body = declared_user(authentication=None, acls=[])
    for namespace, name in keys:
        spec = {**body["spec"], "clusterRef": {"name": "main", "namespace": KEY[0]}}
        one = {**body, "metadata": {"name": name, "namespace": namespace}, "spec": spec}
        scene.objects.users.put(scene.kube.put(USERS, one))
        await scene.run(user.reconcile, (namespace, name))
    for key in keys:
        scene.kube.drop(USERS, *key)
        scene.objects.users.drop(key)
        await scene.run(user.reconcile, key)


async def test_recent_deletions_count_under_next_operator() -> None:
    scene, now_ms = Users(), [1_795_550_000_000]
    scene.term.now_ms = lambda: now_ms[0]
    users = {"deletion": {"graceSeconds": 0, "maxPerHour": 2}}
    scene.declare(users=users)
    await users_go(scene, (KEY[0], "one"), (KEY[0], "two"))
    assert not scene.decided.image.security.users
    scene = under_the_next_operator(scene)
    scene.declare(users=users)
    await users_go(scene, (KEY[0], "three"))
    assert set(scene.decided.image.security.users) == {"three"}
    assert scene.term.shown.notes["Stalled"].reason == "MassDeletion"
    now_ms[0] += 3_600_000
    await scene.run(user.reconcile, (KEY[0], "three"))
    assert not scene.decided.image.security.users


async def test_disposable_users_delay_no_other_deletions() -> None:
    scene, now_ms = Users(), [1_795_550_000_000]
    scene.term.now_ms = lambda: now_ms[0]
    scene.declare(
        users={
            "deletion": {"graceSeconds": 0, "maxPerHour": 1},
            "allowedNamespaces": {"from": "All"},
        }
    )
    for name in ("shop", KEY[0]):
        scene.kube.put(
            NAMESPACES, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        )
    await users_go(scene, *(("shop", f"shop.{n}") for n in range(5)))
    assert "namespace shop" in scene.term.shown.notes["Stalled"].message
    await users_go(scene, (KEY[0], "writer"))
    assert "writer" not in scene.decided.image.security.users
    assert any(name.startswith("shop.") for name in scene.decided.image.security.users)


def test_offered_user_keeps_its_creation_time() -> None:
    scene = Users()
    scene.apply()
    leader = object.__new__(LedCluster)
    leader.term = scene.term
    leader._queue = ReconcileQueue(handle=AsyncMock())
    leader.offer(Work(Task.USER, KEY))
    found = scene.objects.users.get(KEY)
    assert found is not None
    assert scene.term.seen_uids == {found.metadata.uid: found.metadata.creation_timestamp}


async def test_seen_objects_are_forgotten_once_unneeded() -> None:
    """Each object that ever existed was remembered, for as long as the process ran."""
    scene = Users()
    scene.apply()
    await scene.reconciled()
    leader = object.__new__(LedCluster)
    leader.term = scene.term
    (row,) = scene.decided.image.security.users.values()
    scene.term.seen_uids |= {row.object.uid: "2026-02-01T00:00:00Z", "of-the-past": ""}
    scene.objects.users.drop(KEY)
    leader._forget_unneeded()
    assert list(scene.term.seen_uids) == [row.object.uid], "it may be proven absent yet"
    scene.decided.image = replace(scene.decided.image, security=NOTHING)
    leader._forget_unneeded()
    assert not scene.term.seen_uids
