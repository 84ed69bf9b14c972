"""The memory of a coordinator: 100,000 committed offsets take 41 MB, 1,000 members 6 MB at most."""

import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from uuid import uuid4

import pytest
from tests.plimsoll_core.groups.classic_members import a_join
from tests.plimsoll_core.groups.coordinator_model import CoordinatorModel, an_image

from plimsoll_core.groups import membership as m
from plimsoll_core.groups.records import OffsetCommitted
from plimsoll_core.groups.state import GroupsState, apply
from plimsoll_wire import coordinator_records
from plimsoll_wire.coordinator_records import decode_group_record, encode_group_record

OFFSET_BYTES_MAX = 410
MEMBER_BYTES_MAX = 6_000
SUBSCRIPTION = b"\0\1\0\0\0\1\0\6orders\xff\xff\xff\xff\0\0\0\0"


@contextmanager
def takes(most_bytes: int) -> Iterator[None]:
    """What is kept when it is over."""
    gc.collect()
    tracemalloc.start()
    try:
        yield
        gc.collect()
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert used <= most_bytes, f"{used} bytes, not {most_bytes}"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("groups", "topics", "partitions"), [(1, 10, 500), (500, 1, 10), (500, 10, 1)]
)
def test_committed_offset_takes_410_bytes_at_the_most(
    groups: int, topics: int, partitions: int
) -> None:
    """As a load makes them, whose every record has a topic's name and its id anew.  The last is the
    worst: a dictionary for each offset."""
    state, ids = GroupsState(), [uuid4() for _ in range(topics)]
    places = (
        (group, topic, index)
        for group in range(groups)
        for topic in range(topics)
        for index in range(partitions)
    )
    with takes(groups * topics * partitions * OFFSET_BYTES_MAX):
        for at, (group, topic, index) in enumerate(places):
            committed = OffsetCommitted(
                group_id=f"group-of-an-application-{group}",
                topic=f"topic-of-an-application-{topic}",
                partition=index,
                offset=10**9 + at,
                leader_epoch=7,
                commit_ms=1_700_000_000_000 + at,
                topic_id=ids[topic],
            )
            record = decode_group_record(*encode_group_record(committed))
            apply(state, record, at)  # type: ignore[arg-type]
            del record, committed
        # What the decoder remembers does not grow with what is committed.
        coordinator_records._key_head.cache_clear()


@pytest.mark.slow
def test_member_takes_6_kilobytes_at_the_most() -> None:
    """With two protocols of its own, in the record of its generation and in memory."""
    model = CoordinatorModel(an_image(), looks_on=True)
    with takes(1_000 * MEMBER_BYTES_MAX):
        for number in range(1_000):
            name = f"consumer-of-an-application-{number}"
            join = a_join(
                must_know_its_id=False,
                new_member_id=f"{name}-{uuid4()}",
                client_id=name,
                client_host=f"/10.0.0.{number}",
                protocols=(
                    ("range", bytes(bytearray(SUBSCRIPTION))),
                    ("cooperative-sticky", bytes(bytearray(SUBSCRIPTION))),
                ),
            )
            model.submit(join, str(number))
        model.advance(3_000)
        model.advance(30_000)
        group = model.turn.soft.classic["g"]
        followers = [member for member in group.members if member != group.leader]
        assert group.leader is not None
        parts = tuple((one, bytes(bytearray(SUBSCRIPTION))) for one in group.members)
        for member in (*followers, group.leader):
            sync = m.SyncGroup(
                group_id="g",
                member_id=member,
                generation=group.generation,
                assignments=parts if member == group.leader else (),
            )
            model.submit(sync, member)
        assert type(group.phase).__name__ == "Stable"
        model.answers.clear()
