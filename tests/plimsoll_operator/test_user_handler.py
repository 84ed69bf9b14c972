"""A User object becomes a Secret with a login and what is committed of it; its absence, once it is
proven, ends the user's rights and logins."""

from __future__ import annotations

import base64
from typing import Any

from tests.plimsoll_operator.builders import an_image, replay
from tests.plimsoll_operator.declared_users import KEY, RULES, SECURED, Users
from tests.plimsoll_operator.terms import Deciding, Scene

from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.cluster.model import Endpoint
from plimsoll_core.cluster.records import BrokerUpdated, MetadataVersionFinalized
from plimsoll_core.ids import BrokerId
from plimsoll_core.messages.security import DeclareUser
from plimsoll_core.security.acl import AclOperation, Pattern, ResourceType
from plimsoll_core.security.acl_index import AclQuestion
from plimsoll_core.security.state import Mode
from plimsoll_operator.api.user import UserStatus
from plimsoll_operator.kube.resources import CONFIG_MAPS, SECRETS, USERS
from plimsoll_operator.reconcile.cluster import access
from plimsoll_operator.reconcile.cluster.access import secure_condition
from plimsoll_operator.reconcile.registry import KINDS
from plimsoll_operator.reconcile.user import reconcile as user
from plimsoll_operator.status.status_writer import Target


async def test_user_secret_matches_committed_credentials() -> None:
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


async def test_tls_user_secret_states_the_authority() -> None:
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


async def test_secret_is_a_complete_service_binding() -> None:
    endpoints = tuple(
        Endpoint(name="secured", host=f"main-broker-{number}-0", port=9094) for number in range(2)
    )
    scene = Users()
    for number, one in enumerate(endpoints):
        broker = scene.decided.image.brokers[BrokerId(number)]
        record = BrokerUpdated(
            cause="registration",
            broker_id=broker.id,
            broker_epoch=broker.broker_epoch,
            directory_ids=broker.directory_ids,
            endpoints=(*broker.endpoints, one),
        )
        scene.decided.image = replay(scene.decided.image, record)
    scene.apply()
    await scene.reconciled()
    secret = scene.secret()
    servers = "main-broker-0-0:9094,main-broker-1-0:9094"
    password = secret["password"]
    jaas = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required"
        f' username="writer" password="{password}";'
    )
    common = {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
    }
    assert lines_of(secret["java.properties"]) == {**common, "sasl.jaas.config": jaas}
    login = {"sasl.username": "writer", "sasl.password": password}
    assert lines_of(secret["librdkafka.conf"]) == {**common, **login}
    own = {"password": password, "username": "writer", "sasl.jaas.config": jaas, **common}
    binding = {"type": "kafka", "provider": "plimsoll", "host": "main-broker-0-0", "port": "9094"}
    frameworks = {
        "user": "writer",
        "bootstrapServers": servers,
        "bootstrap-servers": servers,
        "securityProtocol": "SASL_PLAINTEXT",
        "saslMechanism": "SCRAM-SHA-512",
    }
    files = {name: secret[name] for name in ("java.properties", "librdkafka.conf")}
    assert secret == {**own, **binding, **frameworks, **files}


def lines_of(text: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in text.splitlines())


async def test_password_is_escaped_for_each_reader() -> None:
    """JAAS's quotes within, Java's properties around them; librdkafka takes a line as it is."""
    scene, password = Users(), 'q"b\\s =é😀'
    scene.apply()
    await scene.reconciled()
    edited = scene.kube.find(SECRETS, KEY[0], "writer-kafka")
    edited["data"]["password"] = base64.b64encode(password.encode()).decode()
    scene.kube.put(SECRETS, edited)
    await scene.reconciled()
    secret = scene.secret()
    assert scene.knows(password)
    assert f"sasl.password={password}\n" in secret["librdkafka.conf"]
    assert r"""password="q\"b\\s =é😀";""" in secret["sasl.jaas.config"]
    assert r"""password="q\\"b\\\\s =\u00e9\ud83d\ude00";""" in secret["java.properties"]


async def test_user_looked_at_again_changes_nothing() -> None:
    scene = Users()
    scene.apply()
    await scene.reconciled()
    records, calls = len(scene.decided.records), len(scene.kube.calls)
    await scene.reconciled()
    assert len(scene.decided.records) == records
    assert [verb for verb, *_ in scene.kube.calls[calls:]] == ["get"]


async def test_successor_completes_after_secret_without_commit() -> None:
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


async def test_edited_or_deleted_secret_changes_password() -> None:
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


async def test_previous_password_is_valid_during_overlap() -> None:
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


async def test_password_from_own_secret_is_not_copied() -> None:
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


async def test_foreign_or_missing_secret_is_reported() -> None:
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


async def test_recreated_user_rechecks_namesakes_secret_soon() -> None:
    scene, soon = Users(), []
    scene.effects.add_later = lambda work, ms: soon.append((work.key, ms))
    scene.apply()
    await scene.reconciled()
    scene.kube.drop(USERS, *KEY)
    scene.apply(userName="another")
    soon.clear()
    assert (await scene.reconciled()).reason == "SecretForeign"
    assert soon[0] == (KEY, 1_000)
    scene.kube.drop(SECRETS, KEY[0], "writer-kafka")
    assert (await scene.reconciled()).reason == "Serving"


async def test_unstated_rules_go_and_bad_changes_nothing() -> None:
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


async def test_disabled_user_is_shown_with_its_rules() -> None:
    scene = Users()
    scene.apply(disabled=True)
    assert (await scene.reconciled()).reason == "Disabled"
    security = scene.decided.image.security
    assert security.credential("writer", "SCRAM-SHA-512") is None
    assert security.acls


async def test_user_without_matching_listener_is_unready() -> None:
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
    await scene.run(user.reconcile, (KEY[0], "second"))
    _, status = scene.term.shown.statuses[Target(USERS, KEY[0], "second")]
    assert isinstance(status, UserStatus)
    assert status.conditions[0].reason == "UserNameTaken"
    assert "User kafka/writer" in status.conditions[0].message


# --- spec.authorization --------------------------------------------------------------------------


async def declared(scene: Scene) -> None:
    cluster = scene.term.cluster
    assert cluster is not None
    await scene.run_part(access.declare_authorization, cluster)


async def test_disguise_key_is_committed_with_login_listener() -> None:
    """Without it each broker has its own, and two of them tell who is known."""
    scene = Users()
    await declared(scene)
    committed = scene.decided.image.security.authorization
    assert (committed.mode, len(committed.disguise)) == (Mode.OFF, 32)


async def test_authorization_is_committed_once() -> None:
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


async def test_authorization_at_older_version_stalls() -> None:
    image = replay(an_image(), MetadataVersionFinalized(cause="t", metadata_version=2))
    scene = Scene(image, Deciding(image), authorization={"mode": "Enforce"})
    await declared(scene)
    stalled = scene.term.shown.notes["Stalled"]
    assert stalled.reason == "MetadataTooOld"
    assert "metadata version" in stalled.message


async def test_secure_condition_names_the_widest_hole() -> None:
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


def test_operator_reads_secrets_by_name_only() -> None:
    assert SECRETS not in {kind.resource for kind in KINDS}


async def test_refused_declaration_is_shown_at_the_object() -> None:
    image = replay(an_image(), MetadataVersionFinalized(cause="t", metadata_version=2))
    scene = Users()
    scene.decided.image = image
    scene.apply(authentication=None)
    ready = await scene.reconciled()
    assert ready.reason == "MetadataTooOld"
    assert any(isinstance(asked, DeclareUser) for asked in scene.decided.asked)
