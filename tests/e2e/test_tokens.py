"""A pod with nothing but its ServiceAccount, on Kubernetes: the token that the kubelet projects."""

import json
import ssl
from typing import Any

import pytest
from dev.kubectl import Cluster, is_true, wait_for
from kafka import KafkaConsumer, KafkaProducer
from kafka.errors import TopicAuthorizationFailedError
from kafka.net.sasl.oauth import AbstractTokenProvider
from tests.e2e.clients import cluster_names, left_sockets

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


def a_pod(namespace: str, account: str, image: str) -> dict[str, Any]:
    """It mounts the token and waits: a client on this machine shows it for the pod."""
    token = {"audience": f"plimsoll:{namespace}/main", "expirationSeconds": 600, "path": "token"}
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
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": 10001,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [container],
        "volumes": [
            {"name": "login", "projected": {"sources": [{"serviceAccountToken": token}]}},
        ],
    }


def test_pod_with_nothing_but_its_service_account_writes_and_reads_what_its_user_may(
    operator: Cluster, namespace: str
) -> None:
    cluster = operator

    def ready(kind: str, name: str) -> bool | None:
        return is_true(cluster.get(kind, name, namespace), "Ready") or None

    spec = {
        "brokers": {"count": 1},
        "storage": {"size": "1Gi"},
        "listeners": [LISTENER],
        "authorization": {"mode": "Enforce"},
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
    for account in ("orders", "stranger"):
        applied(cluster, namespace, "ServiceAccount", account)
        applied(cluster, namespace, "Pod", account, a_pod(namespace, account, image))
    for pod in ("orders", "stranger"):
        wait_for(f"pod {pod}", lambda pod=pod: ready("pod", pod), PATIENCE_S)
    wait_for("the listener", lambda: is_open(cluster, namespace), PATIENCE_S)
    topic = {"clusterRef": {"name": "main"}, "partitions": 1, "replicationFactor": 1}
    applied(cluster, namespace, "Topic", "t", topic)
    for kind, name in (("topic", "t"), ("user", "orders")):
        wait_for(f"{kind} {name}", lambda kind=kind, name=name: ready(kind, name), PATIENCE_S)
    authority = cluster.get("configmap", "main-listener-ca", namespace)
    assert authority is not None
    with left_sockets(), cluster_names(cluster, namespace):
        write_and_read(cluster, namespace, authority["data"]["ca.crt"])


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
