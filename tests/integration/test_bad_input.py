"""What a file asks for wrongly is refused in a sentence where the user looks; nothing is lost."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.integration import forked
from tests.integration.local_cluster import (
    LocalCluster,
    assert_nothing_lost,
    consume_all,
    produce,
)

CLUSTER = """
apiVersion: plimsoll.dev/v1alpha1
kind: LogCluster
metadata: {name: main}
spec:
  brokers: {count: 3}
  storage: {size: 1Gi}
"""


def a_topic(name: str = "orders", namespace: str = "default", **spec: str) -> str:
    """A Topic as text; `spec` holds YAML by field."""
    lines = [
        "---",
        "apiVersion: plimsoll.dev/v1alpha1",
        "kind: Topic",
        f"metadata: {{name: {name}, namespace: {namespace}}}",
        "spec:",
        *(f"  {key}: {value}" for key, value in {"clusterRef": "{name: main}", **spec}.items()),
    ]
    return "\n".join(lines) + "\n"


def explicit(*rows: str) -> dict[str, str]:
    assignment = (f"{{partition: {n}, replicas: {row}}}" for n, row in enumerate(rows))
    return {"placement": f"{{strategy: Explicit, assignment: [{', '.join(assignment)}]}}"}


def refusal(directory: Path, text: str) -> str:
    """What `plimsoll local` says to a file that it cannot carry out."""
    path = directory.parent / "wanted.yaml"
    path.write_text(text)
    cluster = LocalCluster(directory, brokers=None, files=[path])
    run = forked.run(forked.OPERATOR, cluster.command[3:], timeout=90)
    said = run.stderr.decode()
    assert run.returncode in (1, 2), said
    assert run.stdout == b"", "it never said that it is ready"
    assert "Traceback" not in said
    assert "never retrieved" not in said, said
    return said


@pytest.mark.parametrize(
    ("topics", "sentence"),
    [
        (a_topic("a", topicName="orders") + a_topic("b", topicName="orders"), "orders"),
        (a_topic(**explicit("[0, 9]")), "not registered: 9"),
        (a_topic(**explicit("[0, 0]")), "twice"),
        (a_topic(**explicit("[0, 1]", "[2]")), "same number"),
        (a_topic(config="{retention.ms: soon}"), "retention.ms"),
        (a_topic(config="{min.insync.replicas: 2}"), "minInSyncReplicas"),
    ],
    ids=["name-twice", "unknown-broker", "broker-twice", "unequal", "ill-typed", "min-isr"],
)
def test_impossible_topic_is_refused_in_a_sentence(
    tmp_path: Path, topics: str, sentence: str
) -> None:
    assert sentence in refusal(tmp_path / "c", CLUSTER + topics)


def test_fewer_partitions_are_refused_and_every_record_stays(tmp_path: Path) -> None:
    wanted = tmp_path / "topics.yaml"
    wanted.write_text(CLUSTER + a_topic(partitions="4"))
    cluster = LocalCluster(tmp_path / "c", brokers=None, files=[wanted])
    with cluster:
        acked = produce(cluster.bootstrap, "orders", [b"%d" % n for n in range(1_000)])
    said = refusal(tmp_path / "c", CLUSTER + a_topic(partitions="3"))
    assert "they cannot decrease to 3" in said
    with cluster:
        assert len(cluster.topic("orders")) == 4
        assert_nothing_lost(acked, consume_all(cluster.bootstrap, "orders", 4))
