"""Waiters of many principals are served in turn."""

from plimsoll_core.quotas.principal_turns import PrincipalTurns


def test_principals_go_in_turn_with_one_waiter_each() -> None:
    turns: PrincipalTurns[str, int] = PrincipalTurns()
    for principal, waiter in (("a", "a1"), ("a", "a2"), ("a", "a3"), ("b", "b1"), ("b", "b2")):
        assert turns.add(principal, waiter, 1)
    assert [turns.take()[1] for _ in range(5)] == ["a1", "b1", "a2", "b2", "a3"]
    assert not turns


def test_principal_taken_early_goes_behind_others() -> None:
    turns: PrincipalTurns[str, int] = PrincipalTurns()
    for principal in ("a", "a", "b", "b"):
        turns.add(principal, f"{principal}{len(turns.get(principal, ()))}", 0)
    assert turns.take("b") == ("b", "b0")
    assert list(turns) == ["a", "b"]


def test_waiter_that_waits_again_keeps_its_place() -> None:
    turns: PrincipalTurns[str, int] = PrincipalTurns()
    turns.add("a", "first", 1)
    turns.add("a", "second", 1)
    assert not turns.add("a", "first", 5)
    assert list(turns["a"].items()) == [("first", 5), ("second", 1)]


def test_forgotten_waiter_leaves_no_empty_queue() -> None:
    turns: PrincipalTurns[str, int] = PrincipalTurns()
    turns.add("a", "x", 1)
    turns.add("b", "x", 1)
    turns.forget("x", "b", "unknown")
    assert list(turns) == ["a"]
    turns.forget("x")
    assert not turns
