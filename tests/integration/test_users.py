"""Users of a local cluster on real processes: real clients log in, have the rights that their
objects state and no others, and are cut off when that ends."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from kafka import KafkaConsumer, KafkaProducer
from tests.integration.declared import log_cluster
from tests.integration.listening import CLUSTER, asked, free_ports
from tests.integration.local_cluster import LocalCluster, wait_for
from tests.kafka_python import left_sockets

USERS = "/apis/plimsoll.dev/v1alpha1/namespaces/default/users"
PATIENCE_S = 30.0
TENANTS = {
    "allowedNamespaces": {"from": "All"},
    "shared": [{"resource": {"type": "Topic", "name": "orders"}, "operations": ["Read"]}],
}


def a_user(name: str, *acls: dict[str, Any], **scram: Any) -> str:
    return json.dumps(
        {
            "apiVersion": "plimsoll.dev/v1alpha1",
            "kind": "User",
            "metadata": {"name": name},
            "spec": {
                "clusterRef": {"name": "main"},
                "authentication": {"scram": scram},
                "acls": list(acls),
            },
        }
    )


def a_tenants_user(namespace: str, *acls: dict[str, Any]) -> str:
    """`<namespace>.app`, of a team's namespace."""
    body = json.loads(a_user("app", *acls))
    body["metadata"]["namespace"] = namespace
    body["spec"]["clusterRef"]["namespace"] = "default"
    return json.dumps(body)


def on(kind: str, name: str, *operations: str, **more: str) -> dict[str, Any]:
    return {"resource": {"type": kind, "name": name, **more}, "operations": list(operations)}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """One listener, which asks for a login; three users, one of them may do all."""
    place = tmp_path_factory.mktemp("users")
    (port,) = free_ports(1)
    documents = [
        log_cluster(
            listeners=[
                {
                    "name": "secured",
                    "port": port,
                    "authentication": ["ScramSha256", "ScramSha512"],
                }
            ],
            authorization={"mode": "Enforce", "superUsers": ["User:admin"]},
            users=TENANTS,
            config={"offsets.topic.num.partitions": 3, "group.initial.rebalance.delay.ms": 0},
        ),
        a_user("admin"),
        a_user("writer", on("Topic", "orders", "Write"), mechanisms=["ScramSha256"]),
        a_user(
            "reader",
            on("Topic", "ord", "Read", pattern="Prefixed"),
            on("Group", "mine", "Read"),
        ),
        a_tenants_user(
            "shop",
            on("Topic", "shop.", "All", pattern="Prefixed"),
            on("Group", "shop.", "Read", pattern="Prefixed"),
            on("Topic", "orders", "Read"),
        ),
        # It asks for what is not its own, too.
        a_tenants_user(
            "billing",
            on("Topic", "billing.", "All", pattern="Prefixed"),
            on("Topic", "*", "All"),
            on("Topic", "shop.", "All", pattern="Prefixed"),
            on("Group", "*", "All"),
            {"resource": {"type": "Cluster"}, "operations": ["All"]},
        ),
    ]
    file = place / "cluster.yaml"
    file.write_text("\n---\n".join(documents))
    with LocalCluster(place / "cluster", brokers=None, files=(file,)) as running:
        for name in ("reader", "shop.app", "billing.app"):
            wait_for("every user has a login", (place / "cluster/users" / name).is_dir)
        admin = AdminClient(client(running, "admin"))
        made = admin.create_topics([NewTopic("orders", 2, 3), NewTopic("secret", 1, 3)])
        for future in made.values():
            future.result(PATIENCE_S)
        yield running


def client(cluster: LocalCluster, user: str, **more: Any) -> dict[str, Any]:
    """What the user's own librdkafka.conf says."""
    text = (cluster.directory / "users" / user / "librdkafka.conf").read_text()
    return {**dict(line.split("=", 1) for line in text.splitlines()), **more}


def as_kafka_python(cluster: LocalCluster, user: str) -> dict[str, Any]:
    said = client(cluster, user)
    return {
        "bootstrap_servers": said["bootstrap.servers"],
        "security_protocol": said["security.protocol"],
        "sasl_mechanism": said["sasl.mechanism"],
        "sasl_plain_username": said["sasl.username"],
        "sasl_plain_password": said["sasl.password"],
    }


def produced(settings: dict[str, Any], topic: str = "orders") -> str:
    """The name of the error; empty: it was acknowledged."""
    producer = confluent_kafka.Producer({**settings, "message.timeout.ms": 20_000})
    said: list[str] = []
    producer.produce(
        topic, b"x", on_delivery=lambda error, _: said.append("" if error is None else error.name())
    )
    producer.flush(PATIENCE_S)
    (found,) = said
    return found


def explained(cluster: LocalCluster, *words: str) -> tuple[int, str]:
    """What `plimsoll acl explain` says."""
    command = [sys.executable, "-m", "plimsoll_operator.cli", "acl", "explain", *words]
    environment = {**os.environ, "KUBECONFIG": str(cluster.directory / "kubeconfig")}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    return done.returncode, (done.stdout + done.stderr).strip()


def test_user_writes_with_secret_and_another_reads(
    cluster: LocalCluster,
) -> None:
    assert produced(client(cluster, "writer")) == ""
    reader = confluent_kafka.Consumer(
        client(cluster, "reader", **{"group.id": "mine", "auto.offset.reset": "earliest"})
    )
    reader.subscribe(["orders"])
    try:
        message = wait_for("a record comes", lambda: reader.poll(1.0), PATIENCE_S)
        assert message.error() is None
        assert message.value() == b"x"
        reader.commit(asynchronous=False)
    finally:
        reader.close()


@left_sockets()
def test_kafka_python_logs_in_writes_and_reads(cluster: LocalCluster) -> None:
    producer = KafkaProducer(**as_kafka_python(cluster, "writer"))
    producer.send("orders", b"python").get(PATIENCE_S)
    producer.close()
    consumer = KafkaConsumer(
        "orders",
        **as_kafka_python(cluster, "reader"),
        auto_offset_reset="earliest",
        consumer_timeout_ms=20_000,
    )
    try:
        assert any(record.value == b"python" for record in consumer)
    finally:
        consumer.close()


def test_kcat_logs_in_with_the_file(cluster: LocalCluster) -> None:
    file = cluster.directory / "users" / "reader" / "librdkafka.conf"
    command = ["kcat", "-F", str(file), "-L"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert 'topic "orders"' in done.stdout
    assert "secret" not in done.stdout
    assert (file.stat().st_mode & 0o077) == 0


def test_user_may_do_nothing_that_no_rule_allows(cluster: LocalCluster) -> None:
    assert produced(client(cluster, "reader")) == "TOPIC_AUTHORIZATION_FAILED"
    assert produced(client(cluster, "writer"), "secret") == "TOPIC_AUTHORIZATION_FAILED"
    admin = AdminClient(client(cluster, "writer"))
    for future in admin.create_topics([NewTopic("more", 1, 3)]).values():
        with pytest.raises(confluent_kafka.KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
            future.result(PATIENCE_S)
    assert "secret" not in admin.list_topics(timeout=PATIENCE_S).topics


def test_nobody_gets_in_without_the_right_password(cluster: LocalCluster) -> None:
    for settings in (
        client(cluster, "admin", **{"sasl.password": "guess"}),
        client(cluster, "admin", **{"sasl.username": "nobody"}),
        {"bootstrap.servers": client(cluster, "admin")["bootstrap.servers"]},
    ):
        with pytest.raises(confluent_kafka.KafkaException):
            AdminClient(settings).list_topics(timeout=3)


def test_kafka_tools_leave_objects_users_alone(
    cluster: LocalCluster,
) -> None:
    admin = AdminClient(client(cluster, "admin"))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192)

    def set_password(user: str) -> Any:
        change = UserScramCredentialUpsertion(user, info, b"of-bob")
        return admin.alter_user_scram_credentials([change])[user].result(PATIENCE_S)

    set_password("bob")
    described = admin.describe_user_scram_credentials(["bob"])["bob"].result(PATIENCE_S)
    assert described.scram_credential_infos[0].iterations == 8192
    with pytest.raises(confluent_kafka.KafkaException, match="User default/reader"):
        set_password("reader")
    bob = {**client(cluster, "admin"), "sasl.username": "bob", "sasl.password": "of-bob"}
    bob["sasl.mechanism"] = "SCRAM-SHA-512"
    assert produced(bob) == "TOPIC_AUTHORIZATION_FAILED"
    rule = ("User:bob", "*", AclOperation.WRITE, AclPermissionType.ALLOW)
    binding = AclBinding(ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, *rule)
    (made,) = admin.create_acls([binding]).values()
    made.result(PATIENCE_S)
    assert produced(bob) == ""
    said = explained(cluster, "main", "User:bob", "Write", "Topic:orders")
    assert said == (
        0,
        "The principal may do this: a client (CreateAcls) states: Allow User:bob from * Write on "
        "Topic orders.",
    )
    unknown = explained(cluster, "main", "User:bob", "Write", "Topic:orders", "--declared")
    assert unknown[0] == 1
    assert "ACLs that clients created" in unknown[1]
    nowhere = explained(cluster, "other", "User:bob", "Write", "Topic:orders")
    assert nowhere[0] == 2
    assert nowhere[1].startswith("There is no LogCluster other in namespace default")
    everything = AclBindingFilter(
        ResourceType.ANY,
        None,
        ResourcePatternType.ANY,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    listed = admin.describe_acls(everything).result(PATIENCE_S)
    declared = {"reader", "writer", "shop.app", "billing.app"}
    assert {one.principal for one in listed} == {f"User:{name}" for name in ("bob", *declared)}
    filter_ = AclBindingFilter(ResourceType.TOPIC, "orders", ResourcePatternType.LITERAL, *rule)
    (gone,) = admin.delete_acls([filter_]).values()
    assert [one.principal for one in gone.result(PATIENCE_S)] == ["User:bob"]
    assert produced(bob) == "TOPIC_AUTHORIZATION_FAILED"


def test_disabled_user_is_disconnected_and_readmitted(
    cluster: LocalCluster,
) -> None:
    errors: list[Any] = []
    failed = threading.Event()

    def heard(error: Any) -> None:
        errors.append(error)
        if error.code() == confluent_kafka.KafkaError._AUTHENTICATION:
            failed.set()

    producer = confluent_kafka.Producer(client(cluster, "writer", error_cb=heard))
    producer.produce("orders", b"before")
    assert producer.flush(PATIENCE_S) == 0
    asked(cluster, "PATCH", f"{USERS}/writer", {"spec": {"disabled": True}})

    def told() -> bool:
        producer.poll(0.1)
        return failed.is_set()

    wait_for("it is told that it may not", told)
    write = ("main", "User:writer", "Write", "Topic:orders")
    assert explained(cluster, *write)[1] == (
        "The principal may not do this: User default/writer is disabled: brokers refuse its logins."
    )
    asked(cluster, "PATCH", f"{USERS}/writer", {"spec": {"disabled": False}})
    wait_for("it may again", lambda: produced(client(cluster, "writer")) == "", poll_s=0.5)

    def noted() -> bool:
        logs = [path.read_text() for path in cluster.directory.glob("logs/broker-*.log")]
        return '"decision": "CutOff", "principal": "User:writer"' in "".join(logs)

    wait_for("the audit log says so", noted)


def test_tenants_reach_own_and_shared_topics_only(cluster: LocalCluster) -> None:
    shop, billing = (client(cluster, f"{name}.app") for name in ("shop", "billing"))
    for name, settings in (("shop.orders", shop), ("billing.orders", billing)):
        admin = AdminClient(settings)
        (made,) = admin.create_topics([NewTopic(name, 1, 3)]).values()
        made.result(PATIENCE_S)
        assert produced(settings, name) == ""
    assert produced(billing, "shop.orders") == "TOPIC_AUTHORIZATION_FAILED"
    assert produced(billing, "secret") == "TOPIC_AUTHORIZATION_FAILED"
    assert produced(shop, "orders") == "TOPIC_AUTHORIZATION_FAILED", "it is shared for reading"
    seen = {
        name: set(AdminClient(settings).list_topics(timeout=PATIENCE_S).topics)
        for name, settings in (("shop", shop), ("billing", billing))
    }
    assert seen == {"shop": {"shop.orders", "orders"}, "billing": {"billing.orders"}}
    admin = AdminClient(billing)
    described = admin.describe_consumer_groups(["shop.readers"])
    with pytest.raises(confluent_kafka.KafkaException, match="GROUP_AUTHORIZATION_FAILED"):
        described["shop.readers"].result(PATIENCE_S)
    (gone,) = admin.delete_topics(["shop.orders"]).values()
    with pytest.raises(confluent_kafka.KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        gone.result(PATIENCE_S)


def shown(namespace: str, cluster: LocalCluster) -> dict[str, Any]:
    path = f"/apis/plimsoll.dev/v1alpha1/namespaces/{namespace}/users/app"
    conditions = asked(cluster, "GET", path)["status"]["conditions"]
    return next(one for one in conditions if one["type"] == "Ready")


def test_tenant_object_reports_refusals_and_applies_rest(cluster: LocalCluster) -> None:
    assert shown("shop", cluster)["reason"] == "Serving"
    ready = shown("billing", cluster)
    assert (ready["status"], ready["reason"]) == ("False", "AclNotAllowed")
    for refused in ("rule 1 (", "rule 2 (", "rule 3 (", "rule 4 ("):
        assert refused in ready["message"]


def test_tenant_of_disallowed_namespace_is_disconnected(
    cluster: LocalCluster,
) -> None:
    settings = client(cluster, "shop.app")
    before = settings["sasl.password"]
    asked(cluster, "PATCH", CLUSTER, {"spec": {"users": {"allowedNamespaces": {"from": "Same"}}}})
    wait_for("the object says so", lambda: shown("shop", cluster)["reason"] == "NotAllowed")
    with pytest.raises(confluent_kafka.KafkaException):
        AdminClient(settings).list_topics(timeout=3)
    asked(cluster, "PATCH", CLUSTER, {"spec": {"users": TENANTS}})
    wait_for("it may again", lambda: shown("shop", cluster)["reason"] == "Serving")
    assert client(cluster, "shop.app")["sasl.password"] == before
    assert produced(settings, "shop.orders") == ""


def test_passwords_stand_in_no_log(cluster: LocalCluster, tmp_path: Path) -> None:
    passwords = [path.read_text() for path in (cluster.directory / "users").glob("*/password")]
    assert len(passwords) >= 3
    said = [*cluster.directory.glob("logs/*"), *cluster.directory.glob("metadata/*")]
    said.append(cluster.stderr_path)
    for path in said:
        content = path.read_bytes()
        assert not [one for one in passwords if one.encode() in content], path
