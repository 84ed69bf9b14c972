"""Frames do not depend on how the bytes arrive; an announced length reserves no memory."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_wire.framing import (
    BEGINNING_BYTES,
    CHUNK_BYTES,
    GROWTH,
    STEP_BYTES,
    STEP_PART,
    Framer,
    FrameTooLarge,
)

LIMIT = 4 * 2**20

frames = st.lists(
    st.one_of(
        st.binary(max_size=40),
        st.integers(0, 3).map(lambda extra: b"x" * (CHUNK_BYTES - 5 + extra)),
        st.just(b"y" * (2 * CHUNK_BYTES)),
    ),
    max_size=8,
)


class Remembering(Framer):
    """What begins like the last long frame is received without being asked about."""

    def __init__(self, frame_bytes_max: int) -> None:
        super().__init__(64)
        self._most = frame_bytes_max
        self.asked: list[int] = []

    def limit_of(self, length: int, beginning: bytes) -> int | None:
        self.asked.append(length)
        if len(beginning) < BEGINNING_BYTES:
            return None
        self.is_alike(beginning, self._most)
        return self._most


def framed(payloads):
    return b"".join(struct.pack(">i", len(payload)) + payload for payload in payloads)


def taken(framer):
    found = []
    while (frame := framer.next_frame()) is not None:
        found.append(bytes(frame))
    return found


kinds = st.sampled_from([Framer, Remembering])


@pytest.mark.slow
@given(payloads=frames, size=st.integers(1, 3 * CHUNK_BYTES), kind=kinds)
@settings(max_examples=60)
def test_frames_are_independent_of_chunking(payloads, size, kind):
    data = framed(payloads)
    framer = kind(LIMIT)
    found = []
    for start in range(0, len(data), size):
        framer.receive(data[start : start + size])
        found += taken(framer)
    assert found == payloads
    assert not framer.unfinished


@given(payloads=st.lists(st.binary(max_size=20), max_size=6))
def test_byte_by_byte(payloads):
    framer = Framer(LIMIT)
    found = []
    for byte in framed(payloads):
        framer.receive(bytes([byte]))
        found += taken(framer)
    assert found == payloads


@given(payloads=frames, kind=kinds)
@settings(max_examples=40)
def test_reading_into_the_buffer_gives_the_same(payloads, kind):
    data = memoryview(framed(payloads))
    framer = kind(LIMIT)
    found = []
    while data:
        room = framer.get_buffer()
        assert len(room) > 0
        count = min(len(room), len(data))
        room[:count] = data[:count]
        framer.received(count)
        found += taken(framer)
        data = data[count:]
    assert found == payloads


def test_everything_at_once_without_taking_frames_in_between():
    payloads = [b"a" * 10, b"b" * (3 * CHUNK_BYTES), b"c" * CHUNK_BYTES, b"d"]
    framer = Framer(LIMIT)
    framer.receive(framed(payloads))
    assert taken(framer) == payloads


@pytest.mark.parametrize("length", [-1, -(2**31), LIMIT + 1, 2**31 - 1])
def test_impossible_length_is_refused_at_once(length):
    framer = Framer(LIMIT)
    framer.receive(struct.pack(">i", length))
    with pytest.raises(FrameTooLarge):
        framer.next_frame()


def test_large_frame_memory_grows_with_received_bytes():
    framer = Framer(LIMIT)
    framer.receive(struct.pack(">i", LIMIT) + b"z" * 100)
    came = 100
    while framer.next_frame() is None:
        room = framer.get_buffer()
        assert framer.held <= max(GROWTH * came, CHUNK_BYTES)
        came += len(room)
        framer.received(len(room))
    assert came == LIMIT


def test_framer_states_growth_before_allocating():
    framer = Framer(LIMIT)
    framer.receive(struct.pack(">i", LIMIT) + b"z" * 100)
    assert framer.growth == 0, "small frames and beginnings have their chunk"
    said = 0
    while framer.next_frame() is None:
        before, growth = framer.held, framer.growth
        framer.received(len(framer.get_buffer()))
        assert framer.held == before + growth
        said += growth
    assert said == LIMIT - 100


def test_idle_framer_keeps_no_memory():
    framer = Framer(LIMIT)
    framer.receive(framed([b"abc"]) + b"\0\0")
    assert taken(framer) == [b"abc"]
    framer.rest()
    framer.receive(b"\0\1x")
    assert taken(framer) == [b"x"], "half a frame is not lost"
    framer.rest()
    framer.receive(framed([b"def"]))
    assert taken(framer) == [b"def"]


def test_framer_applies_limit_once_kind_is_known():
    asked = []

    class Asking(Framer):
        def limit_of(self, length: int, beginning: bytes) -> int | None:
            asked.append((length, beginning))
            return 12 if len(beginning) == BEGINNING_BYTES else None

    framer = Asking(8)
    framer.receive(framed([b"short"]))
    assert framer.next_frame() == b"short"
    assert not asked, "a frame within the lower limit may be of any kind"
    framer.receive(b"\0\0\0\x09ab")
    assert framer.next_frame() is None
    framer.receive(b"cdefghi")
    assert framer.next_frame() == b"abcdefghi"
    assert asked == [(9, b"ab"), (9, b"abcd")]


def test_frame_like_the_last_starts_with_first_bytes():
    framer = Remembering(LIMIT)
    large = b"like" + b"x" * CHUNK_BYTES
    found = []
    for payload, begun in ((large, False), (large, True), (b"else" + large, False), (large, False)):
        beginning, rest = framed([payload])[:100], framed([payload])[100:]
        room = framer.get_buffer()
        room[: len(beginning)] = beginning
        assert framer.received(len(beginning)) is not begun
        assert (framer.held > 0) is begun
        framer.receive(rest)
        found += taken(framer)
    assert found == [large, large, b"else" + large, large]
    assert framer.asked == [len(large), len(large) + 4, len(large)]


def test_frame_like_the_last_keeps_its_limit():
    framer = Remembering(2 * CHUNK_BYTES)
    framer.receive(framed([b"like" + b"x" * CHUNK_BYTES]))
    assert len(taken(framer)) == 1
    framer.receive(struct.pack(">i", 2 * CHUNK_BYTES + 1) + b"like")
    assert framer.held == 0
    with pytest.raises(FrameTooLarge):
        framer.next_frame()


@pytest.mark.parametrize("length", [13, -1])
def test_framer_refuses_a_length_that_no_kind_allows(length):
    framer = Framer(12)
    framer.receive(struct.pack(">i", length))
    with pytest.raises(FrameTooLarge):
        framer.next_frame()


def test_large_frame_grows_to_its_full_length():
    payload = bytes(range(256)) * (LIMIT // 256)
    framer = Framer(LIMIT)
    framer.receive(framed([payload]))
    assert taken(framer) == [payload]


def test_frame_may_be_written_into_by_its_owner():
    framer = Framer(LIMIT)
    framer.receive(framed([b"abc", b"def"]))
    first = framer.next_frame()
    first[:] = b"xyz"
    assert framer.next_frame() == b"def"


def test_large_frame_grows_in_bounded_steps():
    """Fresh memory is written to at once, in the event loop: 48 MiB of it take 45 ms."""
    size = 40 * STEP_BYTES + 123
    framer = Framer(size)
    content = bytes(range(256)) * (size // 256 + 1)
    framer.receive(struct.pack(">i", size) + content[:CHUNK_BYTES])
    assert framer.next_frame() is None
    at = CHUNK_BYTES
    while at < size:
        held, growth = framer.held, framer.growth
        assert growth <= max(STEP_BYTES, held // STEP_PART)
        room = framer.get_buffer()
        count = min(len(room), size - at)
        room[:count] = content[at : at + count]
        room.release()
        framer.received(count)
        assert framer.held == held + growth
        at += count
    assert framer.next_frame() == content[:size]


@pytest.mark.parametrize("size", [3, 3 * CHUNK_BYTES])
def test_frame_taken_back_is_given_again_first(size: int):
    framer = Framer(LIMIT)
    framer.receive(framed([b"a" * size]))
    frame = framer.next_frame()
    framer.receive(framed([b"def"]))
    framer.take_back(frame)
    assert framer.unfinished
    assert framer.next_frame() is frame
    assert framer.next_frame() == b"def"
    assert not framer.unfinished
