"""Pods with nothing but their ServiceAccount, on Kubernetes: by the token that the kubelet projects
one writes and reads what its user may; and what one of the next namespace tries comes to nothing.

One cluster serves both, in this order.
"""

import json
import ssl
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from dev.kubectl import RESTRICTED, Cluster, is_true, wait_for
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import TopicAuthorizationFailedError
from kafka.net.sasl.oauth import AbstractTokenProvider
from tests.e2e import intruder
from tests.e2e.clients import cluster_names
from tests.e2e.drill import SYSTEM
from tests.kafka_python import left_sockets

LISTENER = {"name": "pods", "port": 9094, "tls": {}, "authentication": ["ServiceAccount"]}
PATIENCE_S = 240
"""A kubelet shows a Secret that is new a minute or two later."""
RULES = [
    {"resource": {"type": "Topic", "name": "t"}, "operations": ["Read", "Write"]},
]


class Projected(AbstractTokenProvider):
    """What the kubelet has written into a pod."""

    def __init__(self, cluster: Cluster, namespace: str, pod: str) -> None:
        self._read = (cluster, namespace, pod)

    def token(self) -> str:
        cluster, namespace, pod = self._read
        return cluster.kubectl("-n", namespace, "exec", pod, "--", "cat", "/login/token").strip()


def applied(cluster: Cluster, namespace: str, kind: str, name: str, spec: Any = None) -> None:
    own = {"LogCluster", "Topic", "User"}
    body: dict[str, Any] = {
        "apiVersion": "plimsoll.dev/v1alpha1" if kind in own else "v1",
        "kind": kind,
        "metadata": {"name": name, "namespace": namespace},
        **({} if spec is None else {"spec": spec}),
    }
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(body))


def a_pod(account: str, image: str, audiences: dict[str, str]) -> dict[str, Any]:
    """It mounts tokens, one for each audience by the name of its file, and waits: a client on this
    machine shows one for the pod."""
    tokens = [
        {"serviceAccountToken": {"audience": audience, "expirationSeconds": 600, "path": file}}
        for file, audience in audiences.items()
    ]
    container = {
        "name": "app",
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["sleep", "3600"],
        "volumeMounts": [{"name": "login", "mountPath": "/login", "readOnly": True}],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    return {
        "serviceAccountName": account,
        "terminationGracePeriodSeconds": 0,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [{"name": "login", "projected": {"sources": tokens}}],
    }


@pytest.fixture(scope="module")
def next_door(operator: Cluster) -> Iterator[str]:
    """A namespace that no LogCluster lists."""
    name = f"next-{uuid.uuid4().hex[:8]}"
    operator.make_namespace(name, RESTRICTED)
    yield name
    operator.delete_namespace(name)


@pytest.fixture(scope="module")
def served(operator: Cluster, next_door: str) -> Iterator[str]:
    """The namespace of a LogCluster `main` with a Topic `t`, and of pods `orders`, which has a
    User, and `stranger`; another `orders` is next door."""
    namespace = f"tokens-{uuid.uuid4().hex[:8]}"
    operator.make_namespace(namespace, RESTRICTED)
    serve(operator, namespace, next_door)
    yield namespace
    operator.delete_namespace(namespace)


def serve(cluster: Cluster, namespace: str, next_door: str) -> None:
    def ready(kind: str, name: str, of: str = namespace) -> bool | None:
        return is_true(cluster.get(kind, name, of), "Ready") or None

    spec = {
        "brokers": {"count": 1},
        "storage": {"size": "1Gi"},
        "listeners": [LISTENER],
        "authorization": {"mode": "Enforce"},
        # In the metadata log they are numbers that an API server spells in its own way.
        "quotas": {"defaultUser": {"requestPercentage": 50, "mutationsPerSecond": "5"}},
    }
    applied(cluster, namespace, "LogCluster", "main", spec)
    user = {
        "clusterRef": {"name": "main"},
        "authentication": {"serviceAccount": {"name": "orders"}},
        "acls": RULES,
    }
    applied(cluster, namespace, "User", "orders", user)
    wait_for("the broker", lambda: ready("logcluster", "main"), PATIENCE_S)
    (broker,) = cluster.items("pods", namespace, "app.kubernetes.io/component=broker")
    image = broker["spec"]["containers"][0]["image"]
    audience = f"plimsoll:{namespace}/main"
    all_three = {
        "here": audience,
        "elsewhere": f"plimsoll:{next_door}/main",
        "view": "plimsoll.dev/view",
    }
    pods = ((namespace, "orders"), (namespace, "stranger"), (next_door, "orders"))
    for of, account in pods:
        wanted = {"token": audience} if of == namespace else all_three
        applied(cluster, of, "ServiceAccount", account)
        applied(cluster, of, "Pod", account, a_pod(account, image, wanted))
    for of, pod in pods:
        wait_for(f"pod {pod}", lambda pod=pod, of=of: ready("pod", pod, of), PATIENCE_S)
    wait_for("the listener", lambda: is_open(cluster, namespace), PATIENCE_S)
    topic = {"clusterRef": {"name": "main"}, "partitions": 1, "replicationFactor": 1}
    applied(cluster, namespace, "Topic", "t", topic)
    for kind, name in (("topic", "t"), ("user", "orders")):
        wait_for(f"{kind} {name}", lambda kind=kind, name=name: ready(kind, name), PATIENCE_S)


def authority_of(cluster: Cluster, namespace: str) -> str:
    found = cluster.get("configmap", "main-listener-ca", namespace)
    assert found is not None
    return str(found["data"]["ca.crt"])


def test_pod_authenticates_with_its_service_account_alone(operator: Cluster, served: str) -> None:
    with left_sockets(), cluster_names(operator, served):
        write_and_read(operator, served, authority_of(operator, served))


def test_foreign_namespaces_pod_gets_nothing(
    operator: Cluster, served: str, next_door: str
) -> None:
    """Its account has the name of one that may write here.  Where the network enforces
    NetworkPolicies it does not even reach the replication port; the node of `dev/node.sh` has no
    plugin that does."""
    operators = operator.items("pods", SYSTEM, "app.kubernetes.io/component=operator")
    broker = operator.get("pod", "main-broker-0-0", served)
    assert broker is not None
    known = {
        "broker": broker["status"]["podIP"],
        "host": f"main-broker-0-0.main-brokers.{served}.svc",
        "port": LISTENER["port"],
        "authority": authority_of(operator, served),
        "namespace": served,
        "topic": "t",
        "operators": [one["status"]["podIP"] for one in operators],
    }
    found = operator.kubectl(
        "-n", next_door, "exec", "-i", "orders", "--", "python3", "-", json.dumps(known),
        stdin=Path(intruder.__file__).read_text(), timeout_s=120,
    )  # fmt: skip
    outcomes = json.loads(found)
    assert outcomes.pop("the replication port in plaintext") in ("closed", intruder.UNREACHABLE)
    assert outcomes == {
        "requests before a login": "answered: []",
        "a token for this cluster": "let in; write 29, read 29, sees the topic False",
        "a token for another cluster": "not let in",
        "a token for the view": "not let in",
        "Secrets": "403",
        "a broker's Secret": "403",
        "Users": "403",
        "the metadata log": "403",
        "the view without a token": "401",
        "the view with a token for it": "403",
        "the view with a token for the cluster": "401",
    }


def write_and_read(cluster: Cluster, namespace: str, authority: str) -> None:
    """By the tokens of two pods; clients end with this frame, and leave their sockets."""
    settings = {
        "bootstrap_servers": f"main-bootstrap.{namespace}.svc:9094",
        "security_protocol": "SASL_SSL",
        "ssl_context": ssl.create_default_context(cadata=authority),
        "sasl_mechanism": "OAUTHBEARER",
    }
    orders = {"sasl_oauth_token_provider": Projected(cluster, namespace, "orders")}
    producer = KafkaProducer(acks="all", **settings, **orders)
    sent = {b"record %d" % number for number in range(50)}
    for future in [producer.send("t", value) for value in sent]:
        future.get(timeout=60)
    producer.close()
    consumer = KafkaConsumer(
        "t", auto_offset_reset="earliest", consumer_timeout_ms=60_000, **settings, **orders
    )
    read = {next(consumer).value for _ in sent}
    consumer.close()
    assert read == sent

    stranger = {"sasl_oauth_token_provider": Projected(cluster, namespace, "stranger")}
    producer = KafkaProducer(acks="all", max_block_ms=30_000, **settings, **stranger)
    with pytest.raises(TopicAuthorizationFailedError):
        producer.send("t", b"never").get(timeout=60)
    producer.close()


def is_open(cluster: Cluster, namespace: str) -> bool | None:
    found = cluster.get("logcluster", "main", namespace) or {}
    shown = found.get("status", {}).get("listeners") or ()
    return any(one["name"] == "pods" and one["brokers"] == 1 for one in shown) or None
