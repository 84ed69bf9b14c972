"""An audit compares topics with their sources in a closed cluster, by the login of a Secret."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic
from tests.integration.listening import free_ports
from tests.integration.local_cluster import LocalCluster, wait_for
from tests.integration.test_local_secure import login_of

from plimsoll_spark.session import JARS_VARIABLE

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(900)]

RUN_S = 400
TOPICS = ("orders", "hidden")
READER = """
apiVersion: plimsoll.dev/v1alpha1
kind: User
metadata: {name: auditor}
spec:
  clusterRef: {name: local}
  authentication: {scram: {}}
  acls:
  - {resource: {type: Topic, name: orders}, operations: [Read, DescribeConfigs]}
"""
OURS = "/apis/plimsoll.dev/v1alpha1/namespaces/default/verifications"


def write(bootstrap: str, topic: str, count: int, login: dict[str, Any]) -> None:
    producer = Producer({**login, "bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(topic, b"%d" % number, b"k", 0, timestamp=1_700_000_000_000 + number)
    assert producer.flush(60) == 0


def secret(files: Path) -> dict[str, Any]:
    data = {
        one.name: base64.b64encode(one.read_bytes()).decode()
        for one in files.iterdir()
        if one.name in ("librdkafka.conf", "ca.crt")
    }
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": "mirror", "namespace": "default"},
        "data": data,
    }


def audited(cluster: LocalCluster, name: str, bootstrap: str, topic: str) -> dict[str, Any]:
    body = {
        "apiVersion": "plimsoll.dev/v1alpha1",
        "kind": "Verification",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "clusterRef": {"name": "local"},
            "source": {
                "existingTopics": {"matchPattern": f"there[.]{topic}"},
                "mirrorOf": {"bootstrap": bootstrap, "secret": "mirror", "prefix": "there."},
            },
            "verify": {"checks": ["MirrorEqual"]},
        },
    }
    cluster.api.ask("POST", OURS, body)

    def status() -> dict[str, Any]:
        return cluster.api.ask("GET", f"{OURS}/{name}")[1].get("status") or {}

    wait_for("the verdict", lambda: status().get("verdict"), RUN_S, 0.5)
    return status()


def test_source_in_closed_cluster_needs_the_secret(
    tmp_path: Path, spark_jars: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(JARS_VARIABLE, str(spark_jars))
    user = tmp_path / "user.yaml"
    user.write_text(READER)
    closed = ("--secure", "--port", str(*free_ports(1)), "-f", str(user))
    with (
        LocalCluster(tmp_path / "source", arguments=closed) as source,
        LocalCluster(tmp_path / "mirror") as mirror,
    ):
        admin = login_of(source, "admin")
        client = AdminClient({**admin, "bootstrap.servers": source.bootstrap})
        for topic in TOPICS:
            client.create_topics([NewTopic(topic, 1, 3)])[topic].result(60)
            write(source.bootstrap, topic, 100, admin)
            mirror.create_topic(f"there.{topic}", 1)
            write(mirror.bootstrap, f"there.{topic}", 100, {})
        login = login_of(source, "auditor")
        files = Path(source.ready["users"]) / "auditor"
        mirror.api.ask("POST", "/api/v1/namespaces/default/secrets", secret(files))

        whole = audited(mirror, "whole", login["bootstrap.servers"], "orders")
        assert whole["verdict"] == "Passed", mirror.said()
        assert "100 records of 1 partitions that equal" in whole["conditions"][0]["message"]

        # The rights are those of the Secret's user, and the password goes to no other address.
        hidden = audited(mirror, "hidden", login["bootstrap.servers"], "hidden")
        told = hidden["conditions"][0]
        assert (hidden["verdict"], told["reason"]) == ("Inconclusive", "ReplicasNotRead")
        assert "hidden" in told["message"]
        other = audited(mirror, "other", mirror.bootstrap.split(",")[0], "orders")
        told = other["conditions"][0]
        assert (other["phase"], told["reason"]) == ("Failed", "InvalidSpec")
        assert "is a login for other brokers" in told["message"]

        # Nothing that can be read shows the password.
        password = login["sasl.password"]
        shown = [
            json.dumps(mirror.api.ask("GET", path)[1])
            for path in (
                OURS,
                "/api/v1/namespaces/default/configmaps",
                "/api/v1/namespaces/default/events",
                "/apis/batch/v1/namespaces/default/jobs",
            )
        ]
        shown += [path.read_text(errors="replace") for path in (tmp_path / "mirror").glob("logs/*")]
        assert len(shown) > 4
        assert not [one for one in shown if password in one]
