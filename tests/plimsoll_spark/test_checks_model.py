"""Random faults: the checks in ranges find what a model finds that sees everything at once."""

import tempfile
from collections import defaultdict
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.plimsoll_spark.tables import Read, Sent, agreeing, examined, foreign

from plimsoll_spark.values import Counts

PARTITIONS = (0, 1)
SIZE = 12


def model(
    sent: list[Sent], read: list[Read], ends: dict[int, tuple[int, int]], starts: dict[int, int]
) -> Counts:
    """Count every fault by looking at all records."""
    read = sorted(read, key=lambda one: (one.partition, one.offset))
    ours = [one for one in read if one.ours]
    there = {(one.partition, one.offset): one for one in read}
    seen: set[tuple[int, int]] = set()
    highest: dict[tuple[int, int], int] = defaultdict(lambda: -1)
    out_of_order = 0
    for one in ours:
        if (one.producer, one.sequence) in seen:
            continue
        seen.add((one.producer, one.sequence))
        stream = (one.partition, one.producer)
        out_of_order += one.sequence < highest[stream]
        highest[stream] = max(highest[stream], one.sequence)
    fates = defaultdict(int)
    for ack in sent:
        found = there.get((ack.partition, ack.offset))
        record = (ack.producer, ack.sequence)
        if found and found.ours and (found.producer, found.sequence) == record and found.key >= 0:
            continue
        if record in seen:
            fates["misplaced"] += 1
        elif ack.offset < starts[ack.partition]:
            fates["expired"] += 1
        else:
            fates["mismatched" if found else "lost"] += 1
    gaps = 0
    for partition, (_, end) in ends.items():
        held = [(partition, offset) in there for offset in range(starts[partition], end)]
        gaps += sum(not here and (n == 0 or held[n - 1]) for n, here in enumerate(held))
    return Counts(
        sent=len(sent),
        acked=len(sent),
        read=len(ours),
        foreign=len(read) - len(ours),
        duplicated=len(ours) - len(seen),
        out_of_order=out_of_order,
        gaps=gaps,
        **fates,
    )


places = st.tuples(st.sampled_from(PARTITIONS), st.integers(0, SIZE - 1))
faults = st.lists(
    st.tuples(st.sampled_from(("drop", "copy", "swap", "spoil", "rename")), places, places),
    max_size=6,
)


def broken(kinds: list[tuple[str, tuple[int, int], tuple[int, int]]]) -> list[Read]:
    """The log after the faults; never two records at one offset."""
    log = {(one.partition, one.offset): one for one in agreeing(SIZE)[1]}
    for kind, here, other in kinds:
        one = log.pop(here, None)
        if one is None:
            continue
        match kind:
            case "copy":
                log[here] = one
                log[other] = replace(one, partition=other[0], offset=other[1])
            case "swap":
                two = log.get(other, one)
                log[here] = replace(two, partition=here[0], offset=here[1])
                log[other] = replace(one, partition=other[0], offset=other[1])
            case "spoil":
                log[here] = foreign(one)
            case "rename":
                log[here] = replace(one, key=-1)
    return list(log.values())


@settings(max_examples=60, deadline=None)
@given(kinds=faults, cut=st.integers(0, SIZE), short=st.integers(0, 3), piece=st.integers(1, 9))
def test_ranges_find_what_the_model_finds(
    kinds: list[tuple[str, tuple[int, int], tuple[int, int]]], cut: int, short: int, piece: int
) -> None:
    """`cut`: retention moved partition 0's start there after it was read; `short`: so many records
    are gone from the end of partition 1, and from its log's end."""
    sent = agreeing(SIZE)[0]
    ends = {0: (0, SIZE), 1: (0, SIZE - short)}
    read = [one for one in broken(kinds) if one.offset < ends[one.partition][1]]
    starts = {0: cut, 1: 0}
    with tempfile.TemporaryDirectory() as directory:
        found = examined(Path(directory), sent, read, ends, starts=starts, piece=piece)
    assert found.counts == model(sent, read, ends, starts)
