"""Lines that clients cause: one a minute for the same thing, a share for each principal."""

from __future__ import annotations

from plimsoll_process.log_lines import QUIET_S, DueLine, LineRoom


def written(room: LineRoom[str], now_s: float, most: int = 100) -> list[DueLine[str]]:
    return list(room.due(now_s, most))


def test_same_thing_is_written_once_in_its_time() -> None:
    room: LineRoom[str] = LineRoom()
    for _ in range(5):
        room.note("a", "x", 0)
    assert written(room, 0) == [("x", 5, 0)]
    room.note("a", "x", 1)
    room.note("a", "x", QUIET_S - 1)
    assert written(room, QUIET_S - 1) == []
    assert room
    assert written(room, QUIET_S) == [("x", 2, 0)]
    assert not room


def test_principals_take_turns_and_share_the_room() -> None:
    room: LineRoom[str] = LineRoom(20, floor=1)
    for number in range(100):
        room.note("loud", f"l{number}", 0)
    assert (len(room), room.dropped) == (10, 90)
    room.note("quiet", "q", 0)
    assert [line.what for line in written(room, 0, most=2)] == ["l0", "q"]
    assert room.dropped == 90


def test_dropped_lines_are_counted_in_next() -> None:
    room: LineRoom[str] = LineRoom(4, floor=1)
    for number in range(7):
        room.note("loud", f"l{number}", 0)
    assert written(room, 0) == [("l0", 1, 5), ("l1", 1, 0)]


def test_room_returns_after_its_time() -> None:
    room: LineRoom[str] = LineRoom(4, floor=1)
    for number in range(7):
        room.note("loud", f"l{number}", 0)
    written(room, 0)
    room.note("loud", "later", QUIET_S)
    assert len(room) == 1
    assert room._left_out == {}


def test_principals_beyond_the_room_leave_nothing_behind() -> None:
    room: LineRoom[str] = LineRoom(10, floor=1)
    for number in range(1_000):
        room.note(f"address-{number}", "x", 0)
    assert (len(room), room.dropped, len(room._left_out)) == (10, 990, 0)


def test_rest_is_whatever_was_counted() -> None:
    room: LineRoom[str] = LineRoom()
    room.note("a", "x", 0)
    written(room, 0)
    room.note("a", "x", 1)
    room.note("b", "y", 1)
    assert sorted(room.rest(0.0)) == [("x", 1, 0), ("y", 1, 0)]
