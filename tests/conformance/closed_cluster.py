"""A closed cluster for applications: clients log in over TLS with a password, and what no rule
allows is refused, or only noted.

Called by the tests of Connect, MirrorMaker 2 and Streams with the Users that docs/clients.md shows:
what it says of them is what is tried.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import yaml
from tests.conformance.conftest import Peer
from tests.documented_commands import ROOT, fences
from tests.integration.declared import log_cluster
from tests.integration.listening import free_ports, tls_client
from tests.integration.local_cluster import LocalCluster, wait_for

DOCUMENT = ROOT / "docs" / "clients.md"
LOGIN_S = 60
IMPLIED = {"Describe": ("Read", "Write", "Delete", "Alter"), "DescribeConfigs": ("AlterConfigs",)}
"""By what else it is allowed, as in Kafka."""


class Decision(NamedTuple):
    """Of the audit log: who would have needed what."""

    principal: str
    operation: str
    # Its type and its name, as in Topic:orders.
    resource: str


def documented(kind: str) -> list[dict[str, Any]]:
    """The objects of a kind as the document shows them, but for their namespace: a local cluster
    has one."""
    found = []
    for fence in fences(DOCUMENT):
        for one in yaml.safe_load_all(fence.text) if fence.kind == "yaml" else ():
            if one["kind"] == kind:
                del one["metadata"]["namespace"]
                found.append(one)
    assert found, f"no {kind} in {DOCUMENT}"
    return found


@contextmanager
def closed_cluster(place: Path, mode: str, objects: Iterable[Any]) -> Iterator[LocalCluster]:
    """With these objects; tests look on at a listener of their own, where they may do all."""
    objects = list(objects)
    ports = free_ports(2)
    cluster = log_cluster(
        listeners=[
            {"name": "onlookers", "port": ports[0], "tls": {}},
            {"name": "secured", "port": ports[1], "tls": {}, "authentication": ["ScramSha512"]},
        ],
        authorization={"mode": mode, "superUsers": ["User:ANONYMOUS"]},
        config={"offsets.topic.num.partitions": 5, "group.initial.rebalance.delay.ms": 300},
    )
    file = place / "cluster.yaml"
    file.write_text("\n---\n".join([cluster, *map(json.dumps, objects)]))
    users = [one["metadata"]["name"] for one in objects if one["kind"] == "User"]
    with LocalCluster(place / "cluster", brokers=None, files=[file]) as running:
        for name in users:
            wait_for(f"{name} has a login", login_file(running, name).exists, LOGIN_S)
        yield running


def login_file(running: LocalCluster, user: str) -> Path:
    return running.directory / "users" / user / "java.properties"


def onlooker(running: LocalCluster) -> Peer:
    """For a test's own clients."""
    return Peer(
        name="plimsoll",
        bootstrap=running.ready["listeners"]["onlookers"],
        local=running,
        login=tls_client(running),
    )


def as_user(running: LocalCluster, user: str) -> Peer:
    """For an application: what its user's file says, and nothing else."""
    lines = login_file(running, user).read_text().splitlines()
    pairs = (line.split("=", 1) for line in lines if line)
    said = {name: text.replace("\\n", "\n") for name, text in pairs}
    peer = replace(onlooker(running), bootstrap=said["bootstrap.servers"], java_login=said)
    assert said["security.protocol"] == "SASL_SSL"
    assert said["sasl.mechanism"] == "SCRAM-SHA-512"
    assert said["ssl.truststore.type"] == "PEM"
    return peer


def decided(running: LocalCluster, decision: str) -> set[Decision]:
    """What the audit logs have of Denied or WouldDeny; all of it when the cluster has stopped."""
    found = set()
    for log in (running.directory / "logs").glob("broker-*.log"):
        # Behind the last end of a line is one that is being written.
        for line in log.read_text().split("\n")[:-1]:
            _, marked, text = line.partition(" plimsoll.audit ")
            event = json.loads(text) if marked else {}
            if event.get("decision") == decision:
                found.add(Decision(event["principal"], event["operation"], event["resource"]))
    return found


def rules_of(user: dict[str, Any]) -> list[tuple[Decision, bool]]:
    """Each right that an object gives; and whether its name is a prefix."""
    found = []
    for acl in user["spec"]["acls"]:
        on = acl["resource"]
        for operation in acl["operations"]:
            resource = f"{on['type']}:{on['name']}"
            right = Decision(f"User:{user['metadata']['name']}", operation, resource)
            found.append((right, on.get("pattern") == "Prefixed"))
    return found


def is_of(asked: Decision, rule: Decision, prefix: bool) -> bool:
    """Whether the rule is about what was asked, by this very operation."""
    named = asked.resource.startswith if prefix else asked.resource.__eq__
    return asked[:2] == rule[:2] and named(rule.resource)


def allows(rule: Decision, prefix: bool, asked: Decision) -> bool:
    """Whether the rule is enough for what was asked: most operations imply another one."""
    implied = IMPLIED.get(asked.operation, ()) if rule.operation != asked.operation else ()
    operations = (asked.operation, *implied)
    return rule.operation in operations and is_of(
        asked._replace(operation=rule.operation), rule, prefix
    )


def without(operation: str, users: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The same users with all their rights but one; and not what is left without any."""
    found = []
    for user in users:
        acls = []
        for acl in user["spec"]["acls"]:
            left = [one for one in acl["operations"] if one != operation]
            acls += [{**acl, "operations": left}] if left else []
        found.append({**user, "spec": {**user["spec"], "acls": acls}})
    return found
