"""Logins with tokens at a local cluster on real processes: a pod's ServiceAccount, and an issuer of
the user's own; sessions that are renewed, and sessions that end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.declared import log_cluster
from tests.integration.listening import CORE, asked, free_ports, touch
from tests.integration.local_cluster import LocalCluster, wait_for
from tests.plimsoll_core.security.token_issuer import AnIssuer

from plimsoll_operator.api import API_VERSION

AUDIENCE = "plimsoll:default/main"
PATIENCE_S = 60.0


def an_object(kind: str, name: str, api_version: str = "v1", **more: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **more}


def an_account(name: str, *operations: str) -> dict[str, Any]:
    """A User that is a ServiceAccount, with rights on the topic `orders`."""
    spec: dict[str, Any] = {
        "clusterRef": {"name": "main"},
        "authentication": {"serviceAccount": {"name": name}},
        "acls": [
            {"resource": {"type": "Topic", "name": "orders"}, "operations": list(operations)},
        ],
    }
    return an_object("User", name, API_VERSION, spec=spec)


@pytest.fixture(scope="module")
def corp() -> AnIssuer:
    return AnIssuer("https://id.example.test", "kafka-main")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, corp: AnIssuer) -> Iterator[LocalCluster]:
    place = tmp_path_factory.mktemp("tokens")
    pods, short = free_ports(2)
    documents: list[Any] = [
        log_cluster(
            1,
            listeners=[
                {
                    "name": "pods",
                    "port": pods,
                    "tls": {},
                    "authentication": ["ServiceAccount", "OAuth"],
                },
                {
                    "name": "short",
                    "port": short,
                    "tls": {},
                    "authentication": ["ServiceAccount", "ScramSha512"],
                    "limits": {"reauthSeconds": 4},
                },
            ],
            tokenIssuers=[
                {
                    "name": "corp",
                    "issuer": corp.issuer,
                    "audience": corp.audience,
                    "keysConfigMap": {"name": "corp-keys"},
                }
            ],
            authorization={"mode": "Enforce", "superUsers": ["User:corp:root"]},
        ),
        json.dumps(an_account("writer", "Write")),
        json.dumps(an_account("reader", "Read", "Describe")),
    ]
    file = place / "cluster.yaml"
    file.write_text("\n---\n".join(documents))
    with LocalCluster(place / "cluster", brokers=None, files=(file,)) as running:
        keys = an_object("ConfigMap", "corp-keys", data={"jwks.json": json.dumps(corp.key_set())})
        asked(running, "POST", f"{CORE}/configmaps", keys)
        for name in ("writer", "reader", "nobody"):
            account = an_object("ServiceAccount", name)
            asked(running, "POST", f"{CORE}/serviceaccounts", account)
        touch_until_known(running, corp)
        admin = AdminClient(client(running, lambda: corp.token("root")))
        admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result(PATIENCE_S)
        yield running


def touch_until_known(cluster: LocalCluster, corp: AnIssuer) -> None:
    """The operator reads keys once a minute, and with each pass."""

    def known() -> bool:
        touch(cluster, str(time.monotonic()))
        admin = AdminClient(client(cluster, lambda: corp.token("root")))
        try:
            return bool(admin.list_topics(timeout=2).brokers)
        except confluent_kafka.KafkaException:
            return False

    wait_for("the issuer's keys are known", known)


def account_token(cluster: LocalCluster, name: str, audience: str = AUDIENCE) -> str:
    """As the kubelet projects it."""
    body = {"spec": {"audiences": [audience], "expirationSeconds": 600}}
    found = asked(cluster, "POST", f"{CORE}/serviceaccounts/{name}/token", body)
    return str(found["status"]["token"])


def client(
    cluster: LocalCluster, token: Callable[[], str], listener: str = "pods", **more: Any
) -> dict[str, Any]:
    return {
        "bootstrap.servers": cluster.ready["listeners"][listener],
        "security.protocol": "SASL_SSL",
        "ssl.ca.location": cluster.ready["authority"],
        "sasl.mechanism": "OAUTHBEARER",
        # The client asks again at 80 % of what it is told here.
        "oauth_cb": lambda _: (token(), time.time() + 60),
        **more,
    }


def outcome(settings: dict[str, Any], topic: str = "orders") -> str:
    """Of one record: the name of the error; empty: it was acknowledged."""
    said: list[str] = []
    heard: list[str] = []
    settings = {
        "message.timeout.ms": 6_000,
        "error_cb": lambda e: heard.append(e.name()),
        **settings,
    }
    producer = confluent_kafka.Producer(settings)
    producer.produce(
        topic, b"x", on_delivery=lambda error, _: said.append("" if error is None else error.name())
    )
    producer.flush(PATIENCE_S)
    (found,) = said
    return "_AUTHENTICATION" if found and "_AUTHENTICATION" in heard else found


def counted(cluster: LocalCluster, name: str) -> float:
    """A counter of the broker, summed over its labels."""
    lines = cluster.http(0, "/metrics")[1].splitlines()
    rows = [line for line in lines if line.startswith(f"plimsoll_broker_{name}")]
    return sum(float(row.split()[-1]) for row in rows)


def test_pod_writes_with_its_service_account(
    cluster: LocalCluster,
) -> None:
    assert outcome(client(cluster, lambda: account_token(cluster, "writer"))) == ""
    refused = outcome(client(cluster, lambda: account_token(cluster, "nobody")))
    assert refused == "TOPIC_AUTHORIZATION_FAILED"


def test_token_for_another_audience_is_refused(cluster: LocalCluster) -> None:
    before = counted(cluster, 'tokens_refused_total{reason="other-audience"}')
    other = outcome(
        client(cluster, lambda: account_token(cluster, "writer", "plimsoll:shop/other"))
    )
    assert other == "_AUTHENTICATION"
    assert counted(cluster, 'tokens_refused_total{reason="other-audience"}') > before


def test_declared_issuers_user_carries_its_prefix(cluster: LocalCluster, corp: AnIssuer) -> None:
    assert outcome(client(cluster, lambda: corp.token("root"))) == ""
    assert outcome(client(cluster, lambda: corp.token("other"))) == "TOPIC_AUTHORIZATION_FAILED"
    # Where only ServiceAccounts are asked for, the issuer's tokens are nobody's.
    elsewhere = outcome(client(cluster, lambda: corp.token("root"), "short"))
    assert elsewhere == "_AUTHENTICATION"


def test_short_sessions_are_renewed_under_load(
    cluster: LocalCluster,
) -> None:
    before = counted(cluster, "logins_total"), counted(cluster, "connections_closed_total")
    settings = client(cluster, lambda: account_token(cluster, "writer"), "short")
    producer = confluent_kafka.Producer({**settings, "enable.idempotence": True, "linger.ms": 0})
    failed: list[Any] = []
    done: list[int] = []

    def told(error: Any, message: Any) -> None:
        failed.append(error) if error is not None else done.append(message.offset())

    end_s = time.monotonic() + 11  # two sessions and a half
    while time.monotonic() < end_s:
        producer.produce("orders", b"y", on_delivery=told)
        producer.poll(0.02)
    assert producer.flush(PATIENCE_S) == 0
    assert failed == []
    assert len(set(done)) == len(done)
    assert counted(cluster, "logins_total") >= before[0] + 3
