"""A User object becomes a Secret with a login and what is committed of it; its absence, once it is
proven, ends the user's rights and logins."""

from __future__ import annotations

import base64
import re
from typing import Any

import pytest
from tests.plimsoll_operator.builders import a_cluster_body, an_image, replay
from tests.plimsoll_operator.terms import Deciding, Scene

from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.cluster.records import ListenersConfigured, MetadataVersionFinalized
from plimsoll_core.messages.security import DeclareUser
from plimsoll_core.security.acl import AclOperation, Pattern, ResourceType
from plimsoll_core.security.acl_index import AclQuestion
from plimsoll_core.security.scram import ScramCredential, keys_of, salted_password
from plimsoll_core.security.state import Mode
from plimsoll_operator.api.labels import ACKNOWLEDGE
from plimsoll_operator.api.meta import Condition
from plimsoll_operator.api.user import UserStatus
from plimsoll_operator.kube.resources import CONFIG_MAPS, CRDS, NAMESPACES, SECRETS, USERS
from plimsoll_operator.reconcile.cluster import authorization
from plimsoll_operator.reconcile.cluster.authorization import secure_condition
from plimsoll_operator.reconcile.reconcile_term import Task, Work
from plimsoll_operator.reconcile.registry import KINDS, all_work
from plimsoll_operator.reconcile.user import reconcile as user
from plimsoll_operator.reconcile.work_queue import Retry
from plimsoll_operator.status.occurrence import Occurrence
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
        await user.reconcile(self.term, KEY)
        _, status = self.term.statuses[Target(USERS, *KEY)]
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


async def test_user_gets_a_secret_with_ready_files_and_what_is_committed_fits_it() -> None:
    scene = Users()
    scene.apply()
    ready = await scene.reconciled()
    assert (ready.status, ready.reason) == ("True", "Serving")
    secret = scene.secret()
    assert len(secret["password"]) >= 43  # 256 bits
    assert scene.knows(secret["password"])
    assert f"sasl.password={secret['password']}\n" in secret["librdkafka.conf"]
    assert f'password="{secret["password"]}"' in secret["java.properties"]
    stored = scene.kube.find(SECRETS, KEY[0], "writer-kafka")
    assert stored["metadata"]["ownerReferences"][0]["kind"] == "User"
    asked = AclQuestion(
        "User:writer", "h", AclOperation.DESCRIBE, ResourceType.TOPIC, "shop.orders"
    )
    assert scene.decided.image.security.allows(asked)
    assert not scene.decided.image.security.allows(asked._replace(name="other"))
    assert {acl.pattern for acl in scene.decided.image.security.acls} == set(Pattern)


async def test_user_of_a_listener_with_tls_is_told_what_to_trust() -> None:
    tls = Listener(name="tls", port=9094, authentication=("ScramSha512",), tls_version_min="1.2")
    scene = Users(tls)
    authority = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----\n"
    scene.kube.put(
        CONFIG_MAPS,
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "main-listener-ca", "namespace": KEY[0]},
            "data": {"ca.crt": authority},
        },
    )
    scene.apply()
    await scene.reconciled()
    secret = scene.secret()
    assert secret["ca.crt"] == authority
    assert "security.protocol=SASL_SSL\n" in secret["librdkafka.conf"]
    line = (
        r"ssl.truststore.certificates=-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----"
    )
    assert f"{line}\n" in secret["java.properties"]


async def test_user_looked_at_again_changes_nothing() -> None:
    scene = Users()
    scene.apply()
    await scene.reconciled()
    records, calls = len(scene.decided.records), len(scene.kube.calls)
    await scene.reconciled()
    assert len(scene.decided.records) == records
    assert [verb for verb, *_ in scene.kube.calls[calls:]] == ["get"]


async def test_operator_that_died_between_secret_and_commit_is_followed_by_another() -> None:
    scene = Users()
    scene.apply()
    await scene.reconciled()
    password = scene.secret()["password"]
    # The next leader finds the Secret, and a log without the user.
    later = Users()
    later.kube, later.term.kube = scene.kube, scene.kube
    later.objects.users.put(scene.kube.find(USERS, *KEY))
    await later.reconciled()
    assert later.secret()["password"] == password
    assert later.knows(password)


async def test_secret_that_was_edited_or_deleted_is_another_password() -> None:
    scene = Users()
    scene.apply()
    await scene.reconciled()
    before = scene.secret()["password"]
    edited = scene.kube.find(SECRETS, KEY[0], "writer-kafka")
    edited["data"]["password"] = base64.b64encode(b"mine").decode()
    scene.kube.put(SECRETS, edited)
    await scene.reconciled()
    assert scene.knows("mine")
    assert 'password="mine"' in scene.secret()["java.properties"]
    scene.kube.drop(SECRETS, KEY[0], "writer-kafka")
    await scene.reconciled()
    assert scene.secret()["password"] not in (before, "mine")
    assert scene.credential().previous is None


async def test_password_before_is_good_for_as_long_as_they_overlap() -> None:
    scene = Users()
    scene.apply(authentication={"scram": {"overlapSeconds": 600}})
    await scene.reconciled()
    before = scene.credential()
    scene.kube.drop(SECRETS, KEY[0], "writer-kafka")
    await scene.reconciled()
    after = scene.credential()
    assert (after.salt, after.iterations) == (before.salt, before.iterations)
    assert after.previous is not None
    assert after.previous.stored_key == before.stored_key
    left_ms = after.previous.until_ms - scene.term.now_ms()
    assert 590_000 < left_ms <= 600_000


async def test_password_of_ones_own_secret_is_taken_and_not_copied() -> None:
    scene = Users()
    scene.kube.put(
        SECRETS,
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "own", "namespace": KEY[0]},
            "data": {"pw": base64.b64encode(b"chosen").decode()},
        },
    )
    scene.apply(authentication={"scram": {"passwordSecret": {"name": "own", "key": "pw"}}})
    assert (await scene.reconciled()).status == "True"
    assert scene.knows("chosen")
    assert "password" not in scene.secret()


async def test_secret_that_is_missing_or_somebody_elses_is_said_and_nothing_is_overwritten() -> (
    None
):
    scene = Users()
    scene.apply(authentication={"scram": {"passwordSecret": {"name": "own"}}})
    assert (await scene.reconciled()).reason == "SecretMissing"
    foreign = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "writer-kafka", "namespace": KEY[0]},
        "data": {"password": base64.b64encode(b"theirs").decode()},
    }
    scene.kube.put(SECRETS, foreign)
    scene.apply()
    assert (await scene.reconciled()).reason == "SecretForeign"
    assert scene.secret() == {"password": "theirs"}
    assert not scene.decided.image.security.credentials


async def test_rules_that_are_not_stated_any_more_go_and_a_bad_one_changes_nothing() -> None:
    scene = Users()
    scene.apply()
    await scene.reconciled()
    scene.apply(acls=RULES[:1])
    await scene.reconciled()
    assert len(scene.decided.image.security.acls) == 1
    scene.objects.users.put(_without_a_name(scene.kube.find(USERS, *KEY)))
    assert (await scene.reconciled()).reason == "InvalidRule"
    assert len(scene.decided.image.security.acls) == 1


def _without_a_name(body: dict[str, Any]) -> dict[str, Any]:
    """As an API server without the CRD's rules would let it through."""
    rule = {"resource": {"type": "Topic"}, "operations": ["Read"]}
    return {**body, "spec": {**body["spec"], "acls": [rule]}}


async def test_disabled_user_is_said_to_be_and_keeps_its_rules() -> None:
    scene = Users()
    scene.apply(disabled=True)
    assert (await scene.reconciled()).reason == "Disabled"
    security = scene.decided.image.security
    assert security.credential("writer", "SCRAM-SHA-512") is None
    assert security.acls


async def test_user_without_a_listener_that_asks_for_its_login_is_not_ready() -> None:
    scene = Users(Listener(name="open", port=9094))
    scene.apply()
    assert (await scene.reconciled()).reason == "ListenerMissing"


async def test_name_that_another_object_has_is_refused() -> None:
    scene = Users()
    scene.apply()
    await scene.reconciled()
    body = scene.kube.find(USERS, *KEY)
    other = {
        **body,
        "metadata": {"name": "second", "namespace": KEY[0]},
        "spec": {**body["spec"], "userName": "writer"},
    }
    scene.objects.users.put(scene.kube.put(USERS, other))
    await user.reconcile(scene.term, (KEY[0], "second"))
    _, status = scene.term.statuses[Target(USERS, KEY[0], "second")]
    assert isinstance(status, UserStatus)
    assert status.conditions[0].reason == "UserNameTaken"
    assert "User kafka/writer" in status.conditions[0].message


# --- absence -------------------------------------------------------------------------------------


async def gone(scene: Users) -> None:
    scene.kube.drop(USERS, *KEY)
    scene.objects.users.drop(KEY)
    assert Work(Task.USER, KEY) in list(all_work(scene.term))
    await user.reconcile(scene.term, KEY)


async def test_user_whose_object_is_gone_has_no_login_and_no_rules_once_its_grace_is_over() -> None:
    scene, now_ms = Users(), [1_000_000]
    scene.term.now_ms = lambda: now_ms[0]
    told: list[Occurrence] = []
    scene.term.tell = told.append
    scene.apply()
    await scene.reconciled()
    await gone(scene)
    assert [one.reason for one in told] == ["UserPendingDeletion"]
    assert "writer may log in for 300 s more" in told[0].message
    now_ms[0] += 299_999
    await user.reconcile(scene.term, KEY)
    assert scene.decided.image.security.users
    assert scene.decided.image.security.acls
    now_ms[0] += 1
    await user.reconcile(scene.term, KEY)
    security = scene.decided.image.security
    assert not security.users
    assert not security.credentials
    assert not security.acls


async def test_user_without_a_grace_goes_as_soon_as_its_absence_is_proven() -> None:
    scene = Users()
    scene.declare(users={"deletion": {"graceSeconds": 0}})
    scene.apply()
    await scene.reconciled()
    await gone(scene)
    assert not scene.decided.image.security.users


async def test_object_that_takes_the_place_of_another_needs_no_grace() -> None:
    scene = Users()
    scene.apply()
    await scene.reconciled()
    before = scene.decided.image.security.users["writer"].object
    scene.kube.drop(SECRETS, KEY[0], "writer-kafka")  # it goes with its object
    scene.kube.drop(USERS, *KEY)
    scene.objects.users.drop(KEY)
    await user.reconcile(scene.term, KEY)
    scene.apply()
    assert (await scene.reconciled()).status == "True"
    assert scene.decided.image.security.users["writer"].object.uid != before.uid
    assert scene.knows(scene.secret()["password"])


async def test_many_objects_that_go_at_once_cut_off_nobody_until_that_was_meant() -> None:
    scene, now_ms = Users(), [1_795_550_000_000]
    scene.term.now_ms = lambda: now_ms[0]
    users = {"deletion": {"graceSeconds": 60, "maxPerHour": 1}}
    scene.declare(users=users)
    keys = [(KEY[0], name) for name in ("one", "two")]
    body = scene.kube.put(USERS, declared_user(authentication=None))
    for namespace, name in keys:
        other = {**body, "metadata": {"name": name, "namespace": namespace}}
        scene.objects.users.put(scene.kube.put(USERS, other))
        await user.reconcile(scene.term, (namespace, name))
    for key in keys:
        scene.kube.drop(USERS, *key)
        scene.objects.users.drop(key)
        await user.reconcile(scene.term, key)
    stalled = scene.term.notes["Stalled"]
    assert (stalled.status, stalled.reason) == ("True", "MassDeletion")
    assert "2 User objects of namespace kafka disappeared within an hour (one, two)" in (
        stalled.message
    )
    now_ms[0] += 61_000
    for key in keys:
        await user.reconcile(scene.term, key)
    assert set(scene.decided.image.security.users) == {"one", "two"}
    (stamp,) = re.findall(r"acknowledge-deletion=(\S+)\.", stalled.message)
    acknowledged = a_cluster_body(users=users)
    acknowledged["metadata"]["annotations"] = {ACKNOWLEDGE: stamp}
    scene.objects.clusters.put(acknowledged)
    for key in keys:
        await user.reconcile(scene.term, key)
    assert not scene.decided.image.security.users
    assert "Stalled" not in scene.term.notes


@pytest.mark.parametrize("going", [(CRDS, None, "users.plimsoll.dev"), (NAMESPACES, None, "kafka")])
async def test_user_whose_object_goes_with_its_crd_or_namespace_stays(going: Any) -> None:
    scene = Users()
    scene.apply()
    await scene.reconciled()
    scene.kube.set_metadata(*going, deletionTimestamp="2026-01-01T00:00:00Z")
    await gone(scene)
    assert "writer" in scene.decided.image.security.users


async def test_user_that_is_only_not_seen_stays() -> None:
    scene = Users()
    scene.apply()
    await scene.reconciled()
    scene.objects.users.drop(KEY)
    await user.reconcile(scene.term, KEY)
    assert "writer" in scene.decided.image.security.users


async def test_absence_that_cannot_be_read_is_no_proof() -> None:
    scene = Users()
    scene.apply()
    await scene.reconciled()
    scene.kube.drop(CRDS, None, "users.plimsoll.dev")
    scene.objects.users.drop(KEY)
    with pytest.raises(Retry, match="absence is not proven"):
        await user.reconcile(scene.term, KEY)
    assert "writer" in scene.decided.image.security.users


# --- spec.authorization --------------------------------------------------------------------------


async def declared(scene: Scene) -> None:
    cluster = scene.term.cluster
    assert cluster is not None
    await authorization.declare(scene.term, cluster)


async def test_key_that_disguises_unknown_users_is_committed_once_a_listener_asks_for_logins() -> (
    None
):
    """Without it each broker has its own, and two of them tell who is known."""
    scene = Users()
    await declared(scene)
    committed = scene.decided.image.security.authorization
    assert (committed.mode, len(committed.disguise)) == (Mode.OFF, 32)


async def test_authorization_is_committed_once_with_a_key_that_stays() -> None:
    scene = Users(Listener(name="open", port=9094))
    await declared(scene)
    assert not scene.decided.asked
    scene.declare(authorization={"mode": "Enforce", "superUsers": ["User:admin"]})
    await declared(scene)
    committed = scene.decided.image.security.authorization
    assert (committed.mode, committed.super_users) == (Mode.ENFORCE, ("User:admin",))
    assert len(committed.disguise) == 32
    scene.declare(authorization={"mode": "Audit"})
    await declared(scene)
    assert scene.decided.image.security.authorization.disguise == committed.disguise
    records = len(scene.decided.records)
    await declared(scene)
    assert len(scene.decided.records) == records


async def test_authorization_at_an_older_metadata_version_stalls_with_the_remedy() -> None:
    image = replay(an_image(), MetadataVersionFinalized(cause="t", metadata_version=2))
    scene = Scene(image, Deciding(image), authorization={"mode": "Enforce"})
    await declared(scene)
    stalled = scene.term.notes["Stalled"]
    assert stalled.reason == "MetadataTooOld"
    assert "metadata version" in stalled.message


async def test_secure_condition_names_the_widest_hole_and_is_not_shown_where_nothing_is_asked() -> (
    None
):
    scene = Users(SECURED, Listener(name="open", port=9092))
    shown = secure_condition(scene.decided.image)
    assert shown is not None
    assert (shown.status, shown.reason) == ("False", "AnonymousListener")
    scene = Users(SECURED)
    shown = secure_condition(scene.decided.image)
    assert shown is not None
    assert shown.reason == "AuthorizationOff"
    scene.declare(authorization={"mode": "Enforce"})
    await declared(scene)
    shown = secure_condition(scene.decided.image)
    assert shown is not None
    assert shown.reason == "PlaintextInside"
    assert secure_condition(an_image()) is None


def test_operator_asks_for_no_secret_but_by_its_name() -> None:
    assert SECRETS not in {kind.resource for kind in KINDS}


async def test_refused_declaration_is_shown_at_the_object() -> None:
    image = replay(an_image(), MetadataVersionFinalized(cause="t", metadata_version=2))
    scene = Users()
    scene.decided.image = image
    scene.apply(authentication=None)
    ready = await scene.reconciled()
    assert ready.reason == "MetadataTooOld"
    assert any(isinstance(asked, DeclareUser) for asked in scene.decided.asked)
