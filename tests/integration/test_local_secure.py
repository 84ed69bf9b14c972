"""`plimsoll local --secure`: closed when it is ready, usable with the files that it writes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from tests.integration.listening import asked, free_ports, tls_client
from tests.integration.local_cluster import LocalCluster, consume_all, produce, wait_for

CERTIFIED = """
apiVersion: plimsoll.dev/v1alpha1
kind: User
metadata: {name: certified}
spec:
  clusterRef: {name: local}
  authentication: {tls: {}}
  acls:
  - {resource: {type: Topic, name: t}, operations: [Read, Write]}
"""
LOCAL = "/apis/plimsoll.dev/v1alpha1/namespaces/default/logclusters/local"


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    place = tmp_path_factory.mktemp("secure")
    (port,) = free_ports(1)
    file = place / "certified.yaml"
    file.write_text(CERTIFIED)
    arguments = ("--secure", "--port", str(port), "-f", str(file))
    with LocalCluster(place / "cluster", arguments=arguments) as running:
        yield running


def admin_login(cluster: LocalCluster) -> dict[str, Any]:
    """The file that is written for librdkafka."""
    lines = (Path(cluster.ready["users"]) / "admin" / "librdkafka.conf").read_text().splitlines()
    config = dict(line.partition("=")[::2] for line in lines)
    del config["bootstrap.servers"]
    return config


def test_secure_local_cluster_starts_closed(secure: LocalCluster) -> None:
    assert all(secure.metric(broker, "inside_plaintext_connections") == 0 for broker in range(3))

    def shown() -> bool:
        """A status is written once a second at most."""
        conditions = asked(secure, "GET", LOCAL)["status"].get("conditions", ())
        found = {one["type"]: (one["status"], one["reason"]) for one in conditions}
        return found.get("Secure") == ("True", "Closed")

    wait_for("the condition Secure", shown)


def test_admin_files_write_and_read(secure: LocalCluster) -> None:
    login = admin_login(secure)
    values = [b"value %d" % number for number in range(200)]
    admin = AdminClient({"bootstrap.servers": secure.bootstrap, **login})
    admin.create_topics([confluent_kafka.admin.NewTopic("t", 1, 3)])["t"].result(30)
    assert not produce(secure.bootstrap, "t", values, **login).errors
    found = consume_all(secure.bootstrap, "t", 1, **login)
    assert sum(map(len, found.values())) == 200


def test_kcat_lists_the_cluster_as_the_page_says(secure: LocalCluster) -> None:
    users = Path(secure.ready["users"]) / "admin"
    command = ["kcat", "-F", str(users / "librdkafka.conf"), "-L"]
    told = subprocess.run(command, capture_output=True, timeout=60, check=True)
    assert b"3 brokers" in told.stdout


def login_of(cluster: LocalCluster, user: str) -> dict[str, Any]:
    """What librdkafka's file says."""
    path = Path(cluster.ready["users"]) / user / "librdkafka.conf"
    wait_for(f"the login of {user}", path.exists)
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


def test_certificate_user_has_rights_and_private_key(
    secure: LocalCluster,
) -> None:
    login = {**login_of(secure, "certified"), "bootstrap.servers": secure.bootstrap}
    assert not produce(secure.bootstrap, "t", [b"by certificate"], **login).errors
    # The client outlives its call: a collected client answers no future.
    client = AdminClient(login)
    made = client.create_topics([confluent_kafka.admin.NewTopic("u", 1, 3)])
    with pytest.raises(confluent_kafka.KafkaException):
        made["u"].result(30)
    key = (Path(secure.ready["users"]) / "certified" / "tls.key").read_bytes()
    line = max(key.splitlines(), key=len)
    users = "/apis/plimsoll.dev/v1alpha1/namespaces/default/users"
    shown = {
        path: json.dumps(asked(secure, "GET", path)).encode()
        for path in (LOCAL, users, "/api/v1/namespaces/default/events")
    }
    shown |= {f"broker {one}": secure.http(one, "/metrics")[1].encode() for one in range(3)}
    kept = ("logs/*", "broker-*/__cluster_metadata/*", "metadata/*")
    paths = [path for pattern in kept for path in secure.directory.glob(pattern)]
    shown |= {str(path): path.read_bytes() for path in paths if path.is_file()}
    assert len(shown) > 10
    assert not [where for where, content in shown.items() if line in content]


def test_clients_without_login_or_tls_get_nothing(secure: LocalCluster) -> None:
    wrong = {**admin_login(secure), "sasl.password": "wrong"}
    for config in ({}, tls_client(secure), wrong):
        admin = AdminClient({"bootstrap.servers": secure.bootstrap, **config})
        with pytest.raises(confluent_kafka.KafkaException):
            admin.list_topics(timeout=3)


def test_secure_local_cluster_goes_on_with_its_directory(secure: LocalCluster) -> None:
    password = (Path(secure.ready["users"]) / "admin" / "password").read_text()
    secure.stop()
    secure.start()
    assert (Path(secure.ready["users"]) / "admin" / "password").read_text() == password
    found = consume_all(secure.bootstrap, "t", 1, **admin_login(secure))
    assert sum(map(len, found.values())) == 201  # one is by certificate
    test_secure_local_cluster_starts_closed(secure)
