"""FairPool: shares of one pool."""

from hypothesis import given
from hypothesis import strategies as st

from plimsoll_core.quotas.fair_pool import FairPool


def filled(pool: FairPool, principal: str, step: int = 1) -> int:
    """Admit until refused; return what the principal then holds."""
    while pool.admit(principal, step):
        pass
    return pool.held(principal)


def test_principal_alone_gets_half():
    assert filled(FairPool(1000), "User:alice") == 500


def test_newcomer_finds_room_beside_hog():
    pool = FairPool(1000)
    filled(pool, "User:hog")
    assert filled(pool, "User:late") == 250


def test_two_that_take_turns_get_a_third_each():
    pool = FairPool(999)
    while pool.admit("User:a", 1) and pool.admit("User:b", 1):
        pass
    assert (pool.held("User:a"), pool.held("User:b")) == (333, 333)


def test_floor_is_admitted_beside_a_crowd():
    pool = FairPool(1000, floor=10)
    for crowd in range(6):
        filled(pool, f"User:{crowd}")
    assert pool.used <= 1000
    assert filled(pool, "User:late") == 10


def test_refusal_is_counted_and_takes_nothing():
    pool = FairPool(10)
    assert not pool.admit("User:a", 6)
    assert (pool.used, pool.refused, pool.held("User:a")) == (0, 1, 0)


def test_largest_holder_is_named():
    pool = FairPool(100)
    assert pool.largest() is None
    pool.take("User:b", 30)
    pool.take("User:a", 30)
    pool.take("User:c", 5)
    assert pool.largest() == "User:a"
    pool.give_back("User:a", 1)
    assert pool.largest() == "User:b"


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 40), st.booleans())))
def test_pool_is_never_exceeded_and_balances(steps):
    pool = FairPool(100, floor=5)
    mine: dict[str, int] = {}
    for principal, size, back in steps:
        if back and mine.get(principal):
            pool.give_back(principal, mine.pop(principal))
        elif pool.admit(principal, size):
            mine[principal] = mine.get(principal, 0) + size
        assert pool.used == sum(mine.values()) <= pool.capacity
        assert pool.principals == len(mine)
        assert pool.free == pool.capacity - pool.used
