"""Which objects of a backup make a point in time, and what is refused."""

from __future__ import annotations

import zlib
from collections.abc import Collection
from uuid import UUID

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.plimsoll_operator.backup.followed_log import FollowedLog
from tests.plimsoll_operator.test_group_commit import CLUSTER

from plimsoll_operator.backup import backup_objects
from plimsoll_operator.backup.backup_objects import (
    NEWEST,
    Content,
    ObjectName,
    ObjectTooLarge,
    ObjectUnreadable,
    Point,
    Proof,
    chain,
    content_bytes,
    decode,
    encode,
    excess,
    newest_history,
    parse,
    parse_proof,
)

DAY_MS = backup_objects.DAY_MS


def snapshot(end: int, epoch: int = 1, ms: int = 0, nonce: str | None = None) -> ObjectName:
    own = nonce or f"{end:x}"
    return ObjectName(
        is_snapshot=True, base=end, end=end, epoch=epoch, before=own, nonce=own, written_ms=ms
    )


def batches(base: int, end: int, epoch: int = 1, ms: int = 0, **nonces: str | None) -> ObjectName:
    return ObjectName(
        is_snapshot=False,
        base=base,
        end=end,
        epoch=epoch,
        before=nonces.get("before", f"{base:x}"),
        nonce=nonces.get("nonce") or f"{end:x}",
        written_ms=ms,
    )


def stored() -> tuple[Content, bytes]:
    log = FollowedLog()
    log.change(3)
    found = log.tail.read(log.tail.start)
    name = batches(0, int(log.tail.end), epoch=2, before=None, nonce=found[-1].nonce)
    content = Content(name=name, term_id="term-2", batches=found)
    return content, encode(content, CLUSTER)


CONTENT, DATA = stored()


@given(
    is_snapshot=st.booleans(),
    base=st.integers(0, 10**15),
    more=st.integers(1, 10**6),
    epoch=st.integers(0, 10**9),
    nonces=st.tuples(st.binary(min_size=1, max_size=16), st.binary(min_size=1, max_size=16)),
    ms=st.integers(0, 10**13 - 1),
)
def test_names_say_what_objects_hold(
    is_snapshot: bool, base: int, more: int, epoch: int, nonces: tuple[bytes, bytes], ms: int
) -> None:
    before, nonce = (one.hex() for one in nonces)
    name = ObjectName(
        is_snapshot=is_snapshot,
        base=base,
        end=base if is_snapshot else base + more,
        epoch=epoch,
        before=nonce if is_snapshot else before,
        nonce=nonce,
        written_ms=ms,
    )
    assert parse(str(name)) == name
    proof = Proof(at_ms=ms, end=base, digest="0123456789abcdef")
    assert parse_proof(str(proof)) == proof
    assert parse(str(proof)) is None


@given(st.text(max_size=200))
def test_foreign_names_are_not_objects(name: str) -> None:
    assert parse(name) is None
    assert parse_proof(name) is None


def test_stored_batches_are_read_back() -> None:
    assert decode(DATA, CONTENT.name, CLUSTER) == CONTENT


@given(st.integers(0, len(DATA) - 1))
def test_torn_object_is_refused(length: int) -> None:
    with pytest.raises(ObjectUnreadable):
        decode(DATA[:length], CONTENT.name, CLUSTER)


@given(st.integers(0, len(DATA) - 1), st.integers(1, 255))
def test_changed_object_is_refused_or_equal(position: int, flip: int) -> None:
    changed = bytearray(DATA)
    changed[position] ^= flip
    try:
        found = decode(bytes(changed), CONTENT.name, CLUSTER)
    except ObjectUnreadable:
        return
    # Only the term in the first line is not under the checksum: the proof of the copy compares it.
    assert found.batches == CONTENT.batches


def test_object_under_another_name_is_refused() -> None:
    other = batches(0, CONTENT.name.end)
    with pytest.raises(ObjectUnreadable, match="was written under another name"):
        decode(DATA, other, CLUSTER)


def test_object_of_another_cluster_is_refused() -> None:
    with pytest.raises(ObjectUnreadable, match="belongs to cluster"):
        decode(DATA, CONTENT.name, UUID(int=7))


def forged(raw: bytes, name: ObjectName, size: int | None = None) -> bytes:
    packed = zlib.compress(raw)
    header = {
        "name": str(name),
        "clusterId": str(CLUSTER),
        "size": len(raw) if size is None else size,
        "sha256": backup_objects.hashlib.sha256(packed).hexdigest(),
        "termId": "",
    }
    return msgspec.json.encode(header) + b"\n" + packed


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (forged(bytes(10_000_000), CONTENT.name, size=1), "another size"),
        (forged(b"", CONTENT.name, size=2**50), "states a size"),
        (forged(b"nonsense", CONTENT.name), "cannot be read"),
        (forged(msgspec.msgpack.encode(()), CONTENT.name), "at the offset in its name"),
        (forged(msgspec.msgpack.encode(CONTENT.batches[1:]), CONTENT.name), "does not follow"),
        (
            forged(msgspec.msgpack.encode(CONTENT.batches[:-1]), CONTENT.name),
            "at the offset in its name",
        ),
        (forged(msgspec.msgpack.encode(CONTENT.batches[::-1]), CONTENT.name), "does not follow"),
    ],
)
def test_hostile_object_is_refused(data: bytes, why: str) -> None:
    with pytest.raises(ObjectUnreadable, match=why):
        decode(data, CONTENT.name, CLUSTER)


def test_content_beyond_its_bound_is_not_stored(monkeypatch: pytest.MonkeyPatch) -> None:
    name = snapshot(1)
    whole = Content(name=name, term_id="", image=bytes(100))
    monkeypatch.setattr(backup_objects, "SNAPSHOT_BYTES_MAX", 100)
    assert decode(encode(whole, CLUSTER), name, CLUSTER).size == 100
    with pytest.raises(ObjectTooLarge, match="takes 101 bytes"):
        encode(Content(name=name, term_id="", image=bytes(101)), CLUSTER)
    assert len(msgspec.msgpack.encode(CONTENT.batches)) <= content_bytes(CONTENT.batches)


# --- points ---------------------------------------------------------------------------------------

FIRST = (
    snapshot(10, ms=1_000),
    batches(10, 20, ms=2_000),
    batches(20, 30, ms=3_000),
    snapshot(30, ms=3_500),
    batches(30, 40, ms=4_000),
)
RESTORED = (
    batches(20, 25, epoch=1_002, ms=9_000, nonce="beef"),
    batches(25, 60, epoch=1_002, ms=9_500, before="beef", nonce="cafe"),
)


@pytest.mark.parametrize(
    ("point", "wanted"),
    [
        (NEWEST, FIRST[3:]),
        (Point(at_ms=3_600), FIRST[3:4]),
        (Point(at_ms=3_200), FIRST[:3]),
        (Point(at_ms=2_999), FIRST[:2]),
        (Point(offset=25), FIRST[:3]),
        (Point(offset=30), FIRST[3:4]),
        (Point(offset=31), FIRST[3:]),
        (Point(offset=10), FIRST[:1]),
    ],
)
def test_point_begins_at_nearest_snapshot(point: Point, wanted: tuple[ObjectName, ...]) -> None:
    assert chain(FIRST, point) == wanted


def test_newer_history_wins_although_it_is_shorter() -> None:
    everything = FIRST + RESTORED
    assert chain(everything, NEWEST) == FIRST[:2] + RESTORED
    assert chain(everything, Point(at_ms=9_200)) == FIRST[:2] + RESTORED[:1]
    assert chain(everything, Point(at_ms=8_000)) == FIRST[3:]


@pytest.mark.parametrize(
    ("names", "point", "why"),
    [
        ((), NEWEST, "no object"),
        (FIRST, Point(at_ms=500), "up to the wanted point"),
        (FIRST, Point(offset=41), "up to the wanted point"),
        (FIRST[1:2], NEWEST, "is missing"),
        ((FIRST[0], FIRST[2]), NEWEST, "is missing"),
        ((snapshot(20, nonce="beef"), FIRST[2]), NEWEST, "is missing"),
    ],
)
def test_point_with_missing_parts_is_refused(
    names: tuple[ObjectName, ...], point: Point, why: str
) -> None:
    found = chain(names, point)
    assert isinstance(found, str)
    assert why in found


def test_newest_whole_history_at_a_position_is_found() -> None:
    everything = (*FIRST, *RESTORED)
    positions = {(one.end, one.nonce) for one in FIRST}
    assert newest_history(everything, positions) == FIRST[3:]
    assert newest_history((*FIRST[:2], *FIRST[4:]), positions) == FIRST[:2]
    assert newest_history(everything, {(20, "beef")}) == ()


def test_names_are_indexed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """No object is whole: each one is tried, among thousands."""
    names = [batches(end, end + 1) for end in range(1, 3_000)]
    indexed: list[int] = []
    index = backup_objects._by_end

    def counted(known: Collection[ObjectName]) -> dict[tuple[int, str], ObjectName]:
        indexed.append(len(known))
        return index(known)

    monkeypatch.setattr(backup_objects, "_by_end", counted)
    assert newest_history(names, {(one.end, one.nonce) for one in names[-50:]}) == ()
    assert indexed == [len(names)]


def test_stored_twice_by_two_operators_is_one_history() -> None:
    twice = (*FIRST, batches(10, 30, ms=3_100), batches(30, 35, ms=3_900))
    found = chain(twice, NEWEST)
    assert not isinstance(found, str)
    assert found[-1].end == 40


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, DAY_MS)), min_size=1, max_size=40),
    st.integers(DAY_MS, 20 * DAY_MS),
)
def test_retention_keeps_points_of_its_time(steps: list[tuple[int, int]], keep_ms: int) -> None:
    """What is restored at a time of the last day is the same before and after; at an older time it
    is at least the last snapshot."""
    now, end = 0, 1
    names = [snapshot(1, ms=0)]
    for kind, pause in steps:
        now += pause
        if kind == 0:
            names.append(snapshot(end, ms=now))
        else:
            names.append(batches(end, end + kind, ms=now))
            end += kind
    gone = excess(names, keep_ms, now)
    kept = [one for one in names if one not in gone]
    times = [one.written_ms for one in names if one.written_ms >= now - keep_ms]
    for at_ms in [max(0, now - keep_ms), *times, now]:
        before, after = chain(names, Point(at_ms=at_ms)), chain(kept, Point(at_ms=at_ms))
        assert not isinstance(before, str)
        assert not isinstance(after, str)
        if at_ms >= now - backup_objects.FINE_MS:
            assert before[-1].end == after[-1].end
        else:
            snapshots = [one for one in names if one.is_snapshot and one.written_ms <= at_ms]
            assert max(one.end for one in snapshots) <= after[-1].end <= before[-1].end


def test_number_of_kept_objects_is_bounded() -> None:
    """Two months with a change every ten minutes, and a snapshot each day."""
    names = [snapshot(1, ms=0)]
    for number in range(1, 60 * 144):
        end, ms = number + 1, number * 600_000
        names.append(batches(end - 1, end, ms=ms))
        if number % 144 == 0:
            names.append(snapshot(end, ms=ms))
        if number % 50 == 0:
            gone = set(excess(names, 7 * DAY_MS, ms))
            names = [one for one in names if one not in gone]
    assert len(names) < 2 * 144 + 60
