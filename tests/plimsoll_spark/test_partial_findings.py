"""Checks that ran out of time: what they had examined is judged, and nothing else."""

from collections.abc import Collection
from pathlib import Path
from unittest import mock

import numpy as np
from confluent_kafka import KafkaException
from tests.plimsoll_spark.tables import KnownLog, Read, Sent, agreeing, examination

from plimsoll_spark import checks
from plimsoll_spark.checks import Examination, RangeItem
from plimsoll_spark.topics import TopicClient
from plimsoll_spark.values import Findings

RANGES = {0: (0, 10), 1: (0, 10)}


def partly(
    directory: Path, sent: list[Sent], read: list[Read], partitions: Collection[int]
) -> tuple[Examination, Findings | None]:
    """The findings once the ranges of some partitions have been examined."""
    begun = examination(directory, sent, RANGES)
    done = [
        item
        for item in begun.items
        if isinstance(item, RangeItem) and item.span.partition in partitions
    ]
    client = mock.create_autospec(TopicClient, instance=True)
    client.ranges.return_value = begun.ranges
    with (
        mock.patch.object(checks, "Reader", return_value=KnownLog(read)),
        mock.patch.object(checks, "markers_of", return_value=np.zeros(0, np.int64)),
    ):
        checks.examine_some(begun.job, done)
        return begun, checks.partial_findings(begun, client)


def test_only_examined_ranges_are_judged(tmp_path: Path) -> None:
    sent, read = agreeing()
    in_the_other = [one for one in read if (one.partition, one.offset) != (1, 9)]
    _, found = partly(tmp_path, sent, in_the_other, [0])
    assert found is not None
    assert (found.counts.read, found.counts.acked) == (10, 20)
    assert (found.counts.lost, found.counts.gaps, found.examples) == (0, 0, ())


def test_loss_in_an_examined_range_is_found(tmp_path: Path) -> None:
    sent, read = agreeing()
    _, found = partly(tmp_path, sent, read[:4] + read[5:], [0])
    assert found is not None
    assert (found.counts.lost, found.counts.gaps) == (1, 1)
    assert ("lost", 4) in [(one.kind, one.sequence) for one in found.examples]


def test_missing_record_of_compacted_topic_is_not_judged(tmp_path: Path) -> None:
    """The newer record of the key may be in a range that was not examined."""
    sent, read = agreeing()
    begun, _ = partly(tmp_path, sent, read[:4] + read[5:], [0])
    client = mock.create_autospec(TopicClient, instance=True)
    client.ranges.return_value = begun.ranges
    with mock.patch.object(checks, "Reader", return_value=KnownLog(())):
        found = checks.partial_findings(begun, client, compacted=True)
    assert found is not None
    assert (found.counts.lost, found.counts.gaps, found.examples) == (0, 0, ())
    assert (found.cleaned, found.cleaned_gaps) == (1, 1)


def test_ack_without_offset_waits_for_every_range(tmp_path: Path) -> None:
    """Its record may be in a range that was not read."""
    sent, read = agreeing()
    sent[14] = Sent(producer=1, sequence=4, partition=1, offset=None)
    _, found = partly(tmp_path, sent, read, [0])
    assert found is not None
    assert found.counts.lost == 0


def test_nothing_is_judged_without_range_or_brokers(tmp_path: Path) -> None:
    sent, read = agreeing()
    begun, found = partly(tmp_path, sent, read, [])
    assert found is None
    client = mock.create_autospec(TopicClient, instance=True)
    client.ranges.side_effect = KafkaException()
    with mock.patch.object(checks, "Reader", return_value=KnownLog(read)):
        checks.examine_some(begun.job, begun.items)
    assert checks.partial_findings(begun, client) is None
