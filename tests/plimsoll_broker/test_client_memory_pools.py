"""Sums of bytes: a fetch gets a share of what is left, and who waits goes on in turn."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from plimsoll_broker.replication import fetcher, peer_connection
from plimsoll_broker.server.client_memory import (
    MIB,
    REPLICATED_BYTES_MAX,
    Intake,
    MemoryAccount,
    Pool,
    RequestAccount,
    budgets_of,
)


class Waiter:
    """Tries to get its bytes whenever it is woken."""

    def __init__(self, account, wanted):
        self.account = account
        self.wanted = wanted
        self.got = 0
        self.woken = 0

    def wake(self):
        self.woken += 1
        self.got = self.account.grant(self.wanted)
        if not self.got:
            self.account.wait(self)


class Passing(Waiter):
    """Needs a byte for a moment."""

    def __init__(self, account):
        super().__init__(account, 1)

    def wake(self):
        super().wake()
        self.account.give_back(self.got)


class Told:
    """The shell that has `wake_one` called soon."""

    def __init__(self):
        self.times = 0

    def __call__(self):
        self.times += 1


@pytest.fixture
def told():
    return Told()


def test_grant_is_an_eighth_of_remaining_memory(told):
    pool = Pool(128 * MIB, told)
    accounts = [MemoryAccount(pool, MIB) for _ in range(3)]
    assert [one.grant(100 * MIB) for one in accounts] == [12 * MIB, 10.5 * MIB, 9.1875 * MIB]
    assert MemoryAccount(pool, MIB).grant(1000) == 1000


def test_fetches_never_take_other_requests_share(told):
    pool = Pool(64 * MIB, told)
    for _ in range(1000):
        account = MemoryAccount(pool, MIB)
        granted = account.grant(16 * MIB)
        if granted:
            account.settle(granted, max(granted, 16 * 1024))  # one batch, at least
    assert pool.used <= 64 * MIB * 3 // 4 + 16 * 1024
    assert account.grant(16 * MIB) == 0
    assert account.may_serve


def test_connection_that_holds_its_share_gets_nothing_more(told):
    pool = Pool(64 * MIB, told)
    greedy, other = MemoryAccount(pool, MIB), MemoryAccount(pool, MIB)
    assert greedy.grant(2 * MIB) == 2 * MIB
    assert greedy.grant(2 * MIB) == 0
    assert other.grant(2 * MIB) == 2 * MIB


def test_waiting_fetch_continues_after_own_connection_sent(told):
    pool = Pool(64 * MIB, told)
    account = MemoryAccount(pool, MIB)
    account.grant(2 * MIB)
    waiter = Waiter(account, 1000)
    waiter.wake()
    assert (waiter.got, told.times) == (0, 0)
    account.give_back(2 * MIB)
    assert told.times == 1
    assert not pool.wake_one()
    assert waiter.got == 1000


def test_pool_wakes_waiters_one_at_a_time(told):
    pool = Pool(64 * MIB, told)
    holder = MemoryAccount(pool, 100 * MIB)
    holder.hold(64 * MIB)
    waiters = [Waiter(MemoryAccount(pool, MIB), MIB) for _ in range(3)]
    for waiter in waiters:
        waiter.wake()
    holder.give_back(63 * MIB)
    assert [waiter.got for waiter in waiters] == [0, 0, 0], "giving back wakes no waiter by itself"
    assert pool.wake_one()
    assert [waiter.got for waiter in waiters] == [MIB, 0, 0]
    assert pool.wake_one()
    assert not pool.wake_one()
    assert [waiter.got for waiter in waiters] == [MIB, MIB, MIB]
    assert not pool.short


def test_request_waiting_for_room_precedes_fetches(told):
    pool = Pool(8 * MIB, told)
    holder = MemoryAccount(pool, 100 * MIB, "User:holder")
    holder.hold(8 * MIB)
    woken = []

    class Request:
        def wake(self):
            woken.append("request")

    fetch = Waiter(MemoryAccount(pool, MIB, "User:other"), 1000)
    fetch.wake()
    request = Request()
    pool.wait(request, "User:other")
    assert not holder.may_serve
    holder.give_back(MIB)
    assert not pool.wake_one(), "what is left is no fetch's"
    assert (woken, fetch.got) == (["request"], 0)
    holder.give_back(7 * MIB)
    pool.wake_one()
    assert fetch.got == 1000


def test_closed_account_returns_everything(told):
    pool = Pool(64 * MIB, told)
    account = MemoryAccount(pool, MIB)
    account.grant(5 * MIB)
    waiter = Waiter(account, 7 * MIB)
    waiter.wake()
    account.close()
    assert pool.used == 0
    assert waiter.got == 7 * MIB, "a broker's connection goes on outside the budget"
    account.settle(7 * MIB, 100)
    account.give_back(100)
    assert pool.used == 0
    assert not pool.short


def test_share_without_a_pool_is_granted_everything():
    account = MemoryAccount(None, MIB)
    assert account.grant(500 * MIB) == 500 * MIB
    assert account.may_serve


@given(data=st.data())
@settings(max_examples=60)
def test_pool_counts_bytes_and_strands_no_waiter(data):
    told = Told()
    pool = Pool(1000, told)
    accounts = [MemoryAccount(pool, 200) for _ in range(4)]
    held = [0] * 4
    for _ in range(data.draw(st.integers(1, 40))):
        at = data.draw(st.integers(0, 3))
        what = data.draw(st.sampled_from(["grant", "send", "wake"]))
        if what == "grant":
            granted = accounts[at].grant(data.draw(st.integers(1, 500)))
            if granted:
                size = data.draw(st.integers(0, granted + 50))
                accounts[at].settle(granted, size)
                held[at] += size
            else:
                accounts[at].wait(Passing(accounts[at]))
        elif what == "send" and held[at]:
            size = data.draw(st.integers(1, held[at]))
            accounts[at].give_back(size)
            held[at] -= size
        elif what == "wake":
            while pool.wake_one():
                pass
        assert [one.held for one in accounts] == held
        assert pool.used == sum(held) <= 750 + 50
    for at, account in enumerate(accounts):
        account.give_back(held[at])
    while pool.wake_one():
        pass
    assert (pool.used, pool.short) == (0, False)


NAMES = ("User:a", "User:b", "User:c")


class Silent:
    def wake(self):
        pass


@given(data=st.data())
@settings(max_examples=60)
def test_no_principal_is_given_more_than_its_share(data):
    """Of replies and of requests; a newcomer finds room, whatever the others did."""
    pool, intake = Pool(1000, Told()), Intake(1000, Told())
    fetches = [MemoryAccount(pool, 400, name) for name in NAMES for _ in range(2)]
    requests = [RequestAccount(intake, name) for name in NAMES for _ in range(2)]
    for _ in range(data.draw(st.integers(1, 60))):
        at, size = data.draw(st.integers(0, 5)), data.draw(st.integers(1, 600))
        account, request = fetches[at], requests[at]
        if data.draw(st.booleans()):
            if account.grant(size):
                free = pool.limit - pool.used
                assert pool.shares.held(account.principal) <= free
            if request.admit(size, Silent(), held=0):
                free = intake.limit - intake.shares.used
                assert intake.shares.held(request.principal) <= free
        else:
            account.give_back(min(size, account.held))
            request.give_back(min(size, request.held))
        if not pool.shares.held("User:new") and pool.free_for_fetches > 0:
            assert pool.portion("User:new", 1) == 1
        assert intake.shares.admits("User:new", intake.shares.free // 2)
    for account, request in zip(fetches, requests, strict=True):
        account.close()
        request.give_back(request.held)
    assert (pool.used, intake.used) == (0, 0)


# --- how much there is ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("memory", "replies", "requests", "frame"),
    [
        (512 * MIB, 128 * MIB, 64 * MIB, 64 * MIB),
        (1024 * MIB, 256 * MIB, 128 * MIB, 100 * MIB),
        (8192 * MIB, 2048 * MIB, 1024 * MIB, 100 * MIB),
        (None, 256 * MIB, 128 * MIB, 100 * MIB),
    ],
)
def test_budgets_follow_from_the_memory(memory, replies, requests, frame):
    found = budgets_of(memory)
    assert (found.replies, found.requests, found.frame) == (replies, requests, frame)
    assert found.recent == (memory or 1024 * MIB) // 128
    assert found.groups == (memory or 1024 * MIB) // 8


def test_stated_budgets_hold_and_fit_a_frame():
    found = budgets_of(512 * MIB, replies=10 * MIB, requests=20 * MIB, frame=50 * MIB)
    assert (found.replies, found.requests, found.frame) == (10 * MIB, 20 * MIB, 20 * MIB)


def test_followers_receive_largest_batch_of_clients():
    """Otherwise it would end the replication of all that they fetch from its leader."""
    largest = budgets_of(64 * 1024 * MIB, frame=2**31 - 1).frame
    assert largest == REPLICATED_BYTES_MAX
    assert largest + 2 * fetcher.LIMITS.bytes_max < peer_connection.FRAME_BYTES_MAX
