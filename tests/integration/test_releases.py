"""This release beside the one before: old brokers, an old operator, both in one cluster, an upgrade
under load, and the way back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.integration.local_cluster import assert_nothing_lost, consume_all, wait_for
from tests.integration.releases import (
    EARLIER,
    NEXT,
    PRESENT,
    Releases,
    Writer,
    newest_metadata_version,
    python_path,
)

TOPIC = "orders"
PARTITIONS = 6


NEW_MESSAGES: set[str] = set()
"""What the release before does not know.  Who sends one of these first knows that it is understood,
by the finalised metadata version or by what the other side said of itself."""


def of(release: str, *words: str, given: str = "") -> dict[str, Any]:
    """What `release_messages` says when that release runs it."""
    script = str(Path(__file__).with_name("release_messages.py"))
    found = subprocess.run(
        [sys.executable, script, *words],
        env={**os.environ, "PYTHONPATH": python_path(release)},
        input=given,
        capture_output=True,
        text=True,
        check=True,
    )
    result: dict[str, Any] = json.loads(found.stdout)
    return result


def contains(more: Any, less: Any) -> bool:
    """Whether `more` says what `less` does, and perhaps more fields."""
    if isinstance(less, dict):
        return all(name in more and contains(more[name], less[name]) for name in less)
    if isinstance(less, list):
        return len(more) == len(less) and all(map(contains, more, less))
    return bool(more == less)


@pytest.mark.parametrize(
    ("sender", "reader"), [(PRESENT, EARLIER), (EARLIER, PRESENT)], ids=["new-to-old", "old-to-new"]
)
def test_private_messages_cross_releases_without_loss(sender: str, reader: str) -> None:
    sent = of(sender, "write")
    as_sent = of(sender, "read", given=json.dumps(sent))
    as_read = of(reader, "read", given=json.dumps(sent))
    known = of(reader, "write")
    news = {name for name in sent if name not in known}
    assert news == (NEW_MESSAGES if sender == PRESENT else set())
    for name in sorted(set(sent) - news):
        assert isinstance(as_read[name], dict), f"{name}: {as_read[name]}"
        if sender == PRESENT:
            assert contains(as_sent[name], as_read[name]), name
        else:
            assert contains(as_read[name], as_sent[name]), name


def begin(cluster: Releases) -> None:
    cluster.create_topic(TOPIC, PARTITIONS)
    cluster.wait_isr(TOPIC)


def check(cluster: Releases, writer: Writer) -> None:
    """Every acknowledged record is there, where its producer was told, and once."""
    assert not writer.acked.errors, writer.acked.errors[:3]
    found = consume_all(cluster.bootstrap, TOPIC, PARTITIONS)
    assert_nothing_lost(writer.acked, found)


@pytest.mark.parametrize(
    ("operator", "brokers"),
    [
        # An upgrade begins so.
        pytest.param(PRESENT, EARLIER, marks=pytest.mark.long, id="new-operator-old-brokers"),
        pytest.param(EARLIER, PRESENT, id="old-operator-new-brokers"),
    ],
)
def test_neighbouring_releases_serve_and_fail_over(
    tmp_path: Path, operator: str, brokers: str
) -> None:
    with Releases(tmp_path / "cluster") as cluster:
        cluster.lead(operator)
        cluster.start_all(brokers)
        begin(cluster)
        with Writer(cluster.bootstrap, TOPIC) as writer:
            writer.wait_some()
            cluster.brokers[0].end(9)
            writer.wait_some()
            cluster.start(0, brokers)
            cluster.wait_ready(0)
            cluster.wait_isr(TOPIC)
            cluster.replace_controller(operator)
            cluster.run_as(1, brokers, TOPIC)
            writer.wait_some()
        check(cluster, writer)
        understood = newest_metadata_version(EARLIER)
        assert max(cluster.finalised(), default=0) <= understood, "the other side reads it"


@pytest.mark.long
def test_mixed_cluster_keeps_every_record(tmp_path: Path) -> None:
    """Old followers of new leaders, and new followers of old leaders."""
    with Releases(tmp_path / "cluster") as cluster:
        cluster.lead(PRESENT)
        for broker_id, release in ((0, EARLIER), (1, PRESENT), (2, PRESENT)):
            cluster.start(broker_id, release)
        for broker_id in range(3):
            cluster.wait_ready(broker_id)
        begin(cluster)
        with Writer(cluster.bootstrap, TOPIC) as writer:
            for broker_id in range(3):
                writer.wait_some()
                cluster.brokers[broker_id].end(9)
                writer.wait_some()
                cluster.start(broker_id, cluster.brokers[broker_id].release)
                cluster.wait_ready(broker_id)
                cluster.wait_isr(TOPIC)
        check(cluster, writer)
        assert max(cluster.finalised(), default=0) <= newest_metadata_version(EARLIER)


def test_unfinalised_upgrade_can_be_reverted(tmp_path: Path) -> None:
    understood = newest_metadata_version(EARLIER)
    with Releases(tmp_path / "cluster") as cluster:
        cluster.lead(EARLIER)
        cluster.start_all(EARLIER)
        begin(cluster)
        with Writer(cluster.bootstrap, TOPIC) as writer:
            cluster.replace_controller(NEXT, pinned=understood)
            for broker_id in range(3):
                cluster.run_as(broker_id, NEXT, TOPIC)
            writer.wait_some()
            for broker_id in range(3):
                cluster.run_as(broker_id, EARLIER, TOPIC)
            cluster.replace_controller(EARLIER)
            writer.wait_some()
            cluster.run_as(0, EARLIER, TOPIC)
        check(cluster, writer)
        assert cluster.finalised() == [understood]


def test_finalised_upgrade_has_no_way_back(tmp_path: Path) -> None:
    before, newest = newest_metadata_version(EARLIER), newest_metadata_version(NEXT)
    with Releases(tmp_path / "cluster") as cluster:
        cluster.lead(EARLIER)
        cluster.start_all(EARLIER)
        begin(cluster)
        with Writer(cluster.bootstrap, TOPIC) as writer:
            cluster.replace_controller(NEXT)
            for broker_id in range(3):
                assert cluster.finalised() == [before], "an old broker is left"
                cluster.run_as(broker_id, NEXT, TOPIC)
            wait_for("a newer version is finalised", lambda: cluster.finalised()[1:] == [newest])
            writer.wait_some()

            # An operator of the release before does not lead, and brokers serve meanwhile.
            assert cluster.controller is not None
            assert cluster.controller.end() == 0
            records = cluster.records()
            old = cluster.start_controller(EARLIER)
            wait_for("it says why", lambda: f"#{newest}" in old.said())
            writer.wait_some()
            assert cluster.records() == records
            old.end(9)
            cluster.lead(NEXT)

            # A broker of the release before does not take part, and loses nothing by the attempt.
            assert cluster.brokers[2].end() == 0
            cluster.start(2, EARLIER)
            refused = cluster.brokers[2]
            assert refused.popen.wait(60) == 3, refused.said()[-2000:]
            assert "MetadataTooNew" in refused.said()
            writer.wait_some()
            refused.end()
            cluster.start(2, NEXT)
            cluster.wait_ready(2)
            cluster.wait_isr(TOPIC)
        check(cluster, writer)
