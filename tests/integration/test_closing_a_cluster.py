"""A plaintext cluster becomes a closed one by the commands of docs/security.md, under producers
with acks=all, with a way back; and no secret of all that stands anywhere where it does not belong.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import urllib.request
from collections.abc import Iterable, Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from tests.documented_commands import ROOT, commands
from tests.integration import forked
from tests.integration.declared import log_cluster
from tests.integration.listening import LOAD_PAUSE_S, Load, asked, free_ports
from tests.integration.local_cluster import (
    LocalCluster,
    assert_nothing_lost,
    consume_all,
    wait_for,
)
from tests.integration.test_documented_commands import Terminal
from tests.integration.test_inside import shrinks

KAFKA = "/apis/plimsoll.dev/v1alpha1/namespaces/kafka"
MAIN = f"{KAFKA}/logclusters/main"
TOPIC, PARTITIONS = "orders", 3
BY_TOOLS = "a-password-set-by-kafkas-tools"
BY_OWNER = "a-password-that-its-owner-chose"
GUESS = "a-password-that-somebody-guessed"
PATIENCE_S = 120.0
BEFORE = {"enable.idempotence": False, "topic.metadata.refresh.interval.ms": 1000}
"""Of a client that is refused and is let in again."""


class Migration:
    """The cluster, and the page's commands with the ports that are free here."""

    def __init__(self, cluster: LocalCluster, open_port: int, secured_port: int) -> None:
        self.cluster = cluster
        self.open_port, self.secured_port = open_port, secured_port
        self.terminal = Terminal(str(cluster.directory / "kubeconfig"))

    def type(self, command: str) -> str:
        for documented, here in ((9092, self.open_port), (9094, self.secured_port)):
            command = command.replace(f'"port": {documented}', f'"port": {here}')
        return self.terminal.type(command)

    @property
    def open(self) -> str:
        return f"127.0.0.1:{self.open_port}"

    def login(self, user: str) -> dict[str, Any]:
        """What the user's own librdkafka.conf says."""
        file = self.cluster.directory / "users" / user / "librdkafka.conf"
        return dict(line.split("=", 1) for line in file.read_text().splitlines())

    def knows_where(self, user: str) -> bool:
        """Whether the user's file is there, and names the listener."""
        file = self.cluster.directory / "users" / user / "librdkafka.conf"
        return file.exists() and f":{self.secured_port}" in file.read_text()

    def said(self) -> tuple[str, str]:
        """The condition Secure: its status and reason."""
        conditions = asked(self.cluster, "GET", MAIN).get("status", {}).get("conditions", ())
        found = (one for one in conditions if one["type"] == "Secure")
        return next(((one["status"], one["reason"]) for one in found), ("", ""))

    def would_deny(self) -> float:
        name = "authorizations_would_deny_total"
        return sum(self.cluster.metric(broker, name) for broker in range(3))


@pytest.fixture(scope="module")
def migration(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Migration]:
    """Everything is in plaintext, and all logs are at Debug."""
    place = tmp_path_factory.mktemp("closing")
    ports = free_ports(2)
    file = place / "cluster.yaml"
    file.write_text(log_cluster(namespace="kafka", logging={"level": "Debug"}))
    arguments = ("--port", str(ports[0]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PLIMSOLL_LOG_LEVEL", "debug")
        with LocalCluster(
            place / "cluster", brokers=None, files=(file,), arguments=arguments
        ) as cluster:
            cluster.create_topic(TOPIC, PARTITIONS, {"min.insync.replicas": "2"})
            cluster.wait_isr(TOPIC, 3)
            yield Migration(cluster, *ports)


class OpenClient(Load):
    """A producer that goes on when it is refused."""

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            number += 1
            value = self.name + b"%d" % number
            try:
                self._producer.produce(self._topic, value, on_delivery=self.acked.delivered)
            except confluent_kafka.KafkaException as error:
                self.acked.errors.append(error.args[0])
            self._producer.poll(0)
            self._stop.wait(LOAD_PAUSE_S)


def is_told(load: Load) -> bool:
    """Whether the producer was told that it may not."""
    return any(error.name() == "TOPIC_AUTHORIZATION_FAILED" for error in load.acked.errors)


def test_open_cluster_closes_stepwise_under_load(migration: Migration) -> None:
    # Before them comes the one by which a CA is replaced.
    _, inside, listener, apply, audit, users, enforce, back, alone, secure = commands(
        ROOT / "docs/security.md"
    )
    cluster = migration.cluster
    pids, before = dict(cluster.pids), shrinks(cluster)
    with OpenClient(migration.open, topic=TOPIC, **BEFORE) as old:
        old.goes_on()
        migration.type(inside)
        wait_for("the inside", lambda: "InsideModeSet" in modes(cluster), PATIENCE_S, 0.3)
        old.goes_on()
        migration.type(listener)
        migration.type(apply)
        migration.type(audit)
        wait_for("a login", lambda: migration.knows_where("orders-writer"), PATIENCE_S, 0.2)
        assert "orders-writer" in migration.type(users)
        old.goes_on()
        wait_for("what Enforce would refuse is counted", migration.would_deny, 60, 0.2)
        new_login = migration.login("orders-writer")
        with Load(new_login.pop("bootstrap.servers"), topic=TOPIC, **new_login) as new:
            new.goes_on()
            old.goes_on()
            migration.type(enforce)
            wait_for("the open client is refused", lambda: is_told(old), PATIENCE_S, 0.1)
            new.goes_on()
            migration.type(back)
            old.goes_on()
            migration.type(enforce)
            migration.type(alone)
            migration.type(secure)
            new.goes_on()
            assert not new.acked.errors
            with pytest.raises(confluent_kafka.KafkaException):
                AdminClient({"bootstrap.servers": migration.open}).list_topics(timeout=3)
        old.give_up()
    assert migration.said() == ("True", "Closed")
    assert dict(cluster.pids) == pids
    assert shrinks(cluster) == before
    admin = migration.login("admin")
    found = consume_all(admin.pop("bootstrap.servers"), TOPIC, PARTITIONS, **admin)
    for load in (old, new):
        assert len(load.acked.records) > 100
        # A client that is refused half way may have written a record twice: it is not idempotent.
        own = {value: at for value, at in found.items() if value.startswith(load.name)}
        assert_nothing_lost(load.acked, own, once=load is new)


def modes(cluster: LocalCluster) -> str:
    """The last committed mode of the inside, when it is Required."""
    sets = [one for one in cluster.metadata_records() if one["type"] == "InsideModeSet"]
    return "InsideModeSet" if sets and sets[-1]["mode"] == "Required" else ""


# --- secrets --------------------------------------------------------------------------------------


def admin_client(migration: Migration, **more: Any) -> AdminClient:
    return AdminClient({**migration.login("admin"), **more})


def declare_a_password(migration: Migration) -> None:
    """A Secret that a User names."""
    objects: list[dict[str, Any]] = [
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "chosen"},
            "data": {"word": base64.b64encode(BY_OWNER.encode()).decode()},
        },
        {
            "apiVersion": "plimsoll.dev/v1alpha1",
            "kind": "User",
            "metadata": {"name": "chooser"},
            "spec": {
                "clusterRef": {"name": "main"},
                "authentication": {"scram": {"passwordSecret": {"name": "chosen", "key": "word"}}},
            },
        },
    ]
    for one in objects:
        migration.terminal.type("kubectl apply -n kafka -f -", json.dumps(one))
    login = {"sasl.username": "chooser", "sasl.password": BY_OWNER}

    def lets_in() -> bool:
        with contextlib.suppress(confluent_kafka.KafkaException):
            return bool(admin_client(migration, **login).list_topics(timeout=3).brokers)
        return False

    wait_for("the chosen password lets its user in", lets_in, PATIENCE_S, 0.5)


def set_a_password(migration: Migration) -> None:
    """As Kafka's tools do."""
    change = UserScramCredentialUpsertion(
        "by-tools", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096), BY_TOOLS.encode()
    )
    admin = admin_client(migration)  # what it is asked ends with it
    admin.alter_user_scram_credentials([change])["by-tools"].result(30)


def guess(migration: Migration) -> str:
    """What a client is told that does not know the password."""
    told: list[str] = []
    config = {"sasl.password": GUESS, "error_cb": lambda error: told.append(str(error))}
    producer = confluent_kafka.Producer({**migration.login("admin"), **config})

    def heard() -> list[str]:
        producer.poll(0.1)
        return told

    return "\n".join(wait_for("a refusal", heard))


def passwords(migration: Migration) -> set[bytes]:
    found = {path.read_bytes() for path in migration.cluster.directory.glob("users/*/password")}
    assert len(found) >= 2
    return found | {BY_TOOLS.encode(), BY_OWNER.encode(), GUESS.encode()}


def private_keys(migration: Migration) -> set[bytes]:
    """A line of each: authorities', brokers', of listeners and inside."""
    found = set()
    for path in migration.cluster.directory.rglob("*"):
        if path.is_file() and path.suffix == ".key":
            found.add(max(path.read_bytes().splitlines(), key=len))
    assert len(found) >= 6
    return found


def keys_of_logins(migration: Migration) -> set[bytes]:
    """What the metadata log keeps of passwords, as it writes them and as bytes."""
    found = set()
    for record in migration.cluster.metadata_records():
        if record["type"] == "ScramCredentialSet":
            for name in ("stored_key", "server_key"):
                written = record["credential"][name]
                raw = base64.b64decode(written)
                found |= {written.encode(), raw, raw.hex().encode(), repr(raw)[2:-1].encode()}
    assert len(found) >= 8
    return found


def encoded(secrets: Iterable[bytes]) -> set[bytes]:
    """As they are, and as Secrets hold them."""
    return {form for one in secrets for form in (one, base64.b64encode(one))}


def shown(migration: Migration, told: str) -> Iterator[tuple[str, bytes]]:
    """Everything that people and programs are shown, by where."""
    cluster = migration.cluster
    yield "what a client is told", told.encode()
    for path in (cluster.stderr_path, *cluster.directory.glob("logs/*")):
        yield path.name, path.read_bytes()
    for kind in ("events", "logclusters", "users.plimsoll.dev", "topics", "logbrokers", "pods"):
        command = f"kubectl get {kind} -n kafka -o json"
        yield command, migration.terminal.type(command).encode()
    for broker in range(3):
        for path in ("/metrics", "/healthz", "/readyz"):
            yield f"{path} of broker {broker}", cluster.http(broker, path)[1].encode()
    with urllib.request.urlopen(cluster.ready["metrics"]["controller"], timeout=10) as reply:
        yield "metrics of the controller", reply.read()
    environment = {**os.environ, "KUBECONFIG": str(cluster.directory / "kubeconfig")}
    for verb in ("status", "topics", "topic orders", "brokers", "blocked", "why orders 0"):
        words = [*verb.split(), "-n", "kafka", "-o", "json"]
        done = forked.run(forked.PLUGIN, words, timeout=60, environment=environment)
        assert b"Traceback" not in done.stderr
        yield verb, done.stdout + done.stderr


def test_secrets_stand_nowhere_where_they_do_not_belong(migration: Migration) -> None:
    """Whatever way they came; with all logs at Debug."""
    declare_a_password(migration)
    set_a_password(migration)
    told = guess(migration)
    logs = b"".join(path.read_bytes() for path in migration.cluster.directory.glob("logs/broker-*"))
    assert b" DEBUG " in logs
    secrets = encoded(passwords(migration) | private_keys(migration))
    everywhere = secrets | keys_of_logins(migration)
    for where, content in shown(migration, told):
        assert content or where == "cluster.stderr", where  # there was nothing to warn of
        assert not [one for one in everywhere if one in content], where
    # What is kept of a password is in the metadata log; what lets somebody log in is not.
    for path in (
        *migration.cluster.directory.glob("broker-*/__cluster_metadata/*"),
        *migration.cluster.directory.glob("metadata/*"),
    ):
        content = path.read_bytes()
        assert not [one for one in secrets if one in content], path
