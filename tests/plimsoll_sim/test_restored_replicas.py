"""The check of replicas after a restore that a person chose accuses what has not converged."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest
from tests.plimsoll_operator.builders import an_image, isr_changed, replay, with_topic
from tests.plimsoll_wire.test_batches import a_batch

from plimsoll_core.cluster.model import ClusterImage
from plimsoll_sim.checkers.restored_replicas import RestoredCluster, check_agreement, unsettled
from plimsoll_sim.oracle.partition_ghost import Violation

FIRST, SECOND, OTHER = a_batch(0), a_batch(1), a_batch(1, records=b"o" * 20)


def log_of(*batches: bytes) -> SimpleNamespace:
    def read(offset: int, _: int, __: int) -> bytes:
        return b"".join(batches[offset:])

    return SimpleNamespace(holes=False, log_start_offset=0, log_end_offset=len(batches), read=read)


def cluster_of(image: ClusterImage, *logs: SimpleNamespace) -> RestoredCluster:
    """Brokers 0, 1, 2 that serve with the controller's metadata; each has the partition with its
    log."""

    def host(number: int, log: Any) -> SimpleNamespace:
        return SimpleNamespace(
            id=number,
            serving=True,
            manager=SimpleNamespace(image=image),
            hosted=lambda _: SimpleNamespace(log=log),
        )

    brokers = {number: host(number, log) for number, log in enumerate(logs)}
    operators = [SimpleNamespace(active=True, image=image)]
    return cast("RestoredCluster", SimpleNamespace(brokers=brokers, operators=operators))


IMAGE = with_topic(an_image(), ((0, 1, 2),))


def test_equal_replicas_in_sync_are_settled() -> None:
    cluster = cluster_of(IMAGE, *[log_of(FIRST, SECOND)] * 3)
    assert unsettled(cluster) == []
    check_agreement(cluster)


def test_other_batch_of_equal_length_is_accused() -> None:
    cluster = cluster_of(IMAGE, log_of(FIRST, SECOND), log_of(FIRST, OTHER), log_of(FIRST, SECOND))
    assert unsettled(cluster) == []
    with pytest.raises(Violation, match="RestoredReplicas"):
        check_agreement(cluster)


def test_replica_behind_or_out_of_sync_is_told() -> None:
    logs = log_of(FIRST, SECOND), log_of(FIRST), log_of(FIRST, SECOND)
    assert "ends differ: [1, 2]" in unsettled(cluster_of(IMAGE, *logs))[0]
    out = replay(IMAGE, isr_changed(0, (0, 1)))
    assert "ISR (0, 1) of (0, 1, 2)" in unsettled(cluster_of(out, *logs))[0]
