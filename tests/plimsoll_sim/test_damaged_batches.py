"""A batch of which a bit was changed on its way to the broker: refused, and sent again."""

from random import Random

import pytest

from plimsoll_core.errors import Code
from plimsoll_core.ids import TopicPartition
from plimsoll_sim.checkers.acked_and_read import ClientChecker
from plimsoll_sim.cluster.world import CLUSTER_ID
from plimsoll_sim.hosts.clients import LEADER_EPOCH_AT, with_flipped_bit
from plimsoll_sim.oracle.committed import MetadataGhost
from plimsoll_sim.oracle.partition_ghost import Violation
from plimsoll_sim.runs.run import run

BATCH = bytes(range(90))


def test_flipped_bit_is_one_that_matters() -> None:
    for seed in range(100):
        damaged = with_flipped_bit(BATCH, Random(seed))
        ((at, bits),) = [
            (at, mine ^ theirs)
            for at, (mine, theirs) in enumerate(zip(BATCH, damaged, strict=True))
            if mine != theirs
        ]
        assert at not in LEADER_EPOCH_AT
        assert bits.bit_count() == 1


def test_acknowledged_damage_is_noticed() -> None:
    checker = ClientChecker(MetadataGhost(CLUSTER_ID))
    checker.damaged(TopicPartition("orders", 0), b"a", Code.CORRUPT_MESSAGE)
    with pytest.raises(Violation, match="BatchIntact"):
        checker.damaged(TopicPartition("orders", 0), b"a", Code.NONE)


def test_damaged_batches_are_refused_and_sent_again() -> None:
    result = run(2, 1_500, profile="damaged batches")
    assert result.outcome == "held", result.sentence
    assert result.clients["damaged"] > 3
    assert result.clients["acked"] > result.clients["damaged"]
