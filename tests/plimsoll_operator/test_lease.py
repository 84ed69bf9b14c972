"""The Lease loop: one holder, gives up in time, lets go at once, and never trusts a clock.

On virtual time: a process that is stopped for as long as a Lease lasts loses it, rightly.
"""

import asyncio
from collections.abc import Sequence

import pytest
from tests.plimsoll_operator.scripted_kube import ScriptedKube
from tests.virtual_time import VirtualTimePolicy

from plimsoll_operator.api import labels
from plimsoll_operator.kube.errors import Unavailable
from plimsoll_operator.kube.resources import LEASES
from plimsoll_operator.leadership.lease import FACTOR_MAX, Lease, LeaseLoss, LeasePace, Timing

FAST = Timing(lease_ms=200, renew_ms=120, retry_ms=10, call_ms=50)
HUNG = Unavailable(0, "no answer")
BEGAN_MS = 1_700_000_000_000


@pytest.fixture(scope="module")
def event_loop_policy() -> VirtualTimePolicy:
    return VirtualTimePolicy()


def a_candidate(
    api: ScriptedKube, identity: str, owners: Sequence[dict[str, object]] = ()
) -> Lease:
    loop = asyncio.get_running_loop()

    def wall_ms() -> int:
        """Goes on with the loop's: a renewal that changes nothing would be none."""
        return BEGAN_MS + round(loop.time() * 1000)

    lease = Lease(
        api,
        namespace="kafka",
        name="main-0123",
        identity=identity,
        wall_ms=wall_ms,
        owners=owners,
    )
    lease.timing = FAST
    return lease


def holder(api: ScriptedKube) -> str:
    return str(api.find(LEASES, "kafka", "main-0123")["spec"]["holderIdentity"])


def owners(api: ScriptedKube) -> object:
    return api.find(LEASES, "kafka", "main-0123")["metadata"].get("ownerReferences")


@pytest.fixture
def api() -> ScriptedKube:
    return ScriptedKube()


async def test_first_candidate_makes_the_lease(api: ScriptedKube):
    acquired = await asyncio.wait_for(a_candidate(api, "x").acquire(), 30)
    assert (acquired.previous, holder(api)) == (None, "x")


async def test_new_lease_is_owned_by_its_cluster(api: ScriptedKube):
    owner = labels.owner("LogCluster", "main", "uid-1")
    await a_candidate(api, "x", owner).acquire()
    assert owners(api) == owner


async def test_lease_of_deleted_cluster_gets_next_owner(api: ScriptedKube):
    """Both state one cluster id; what the first owned would be collected."""
    first = a_candidate(api, "x", labels.owner("LogCluster", "main", "uid-1"))
    await first.acquire()
    await first.release()
    owner = labels.owner("LogCluster", "main", "uid-2")
    await a_candidate(api, "y", owner).acquire()
    assert owners(api) == owner


async def test_lease_without_an_owner_gets_none(api: ScriptedKube):
    first = a_candidate(api, "x")
    await first.acquire()
    await first.release()
    await a_candidate(api, "y", labels.owner("LogCluster", "main", "uid-2")).acquire()
    assert owners(api) is None


async def test_second_candidate_waits_while_the_first_renews(api: ScriptedKube):
    first, second = a_candidate(api, "x"), a_candidate(api, "y")
    await first.acquire()
    renewals = 0
    enough = asyncio.Event()

    def renewed(started_ms_ago: int) -> None:
        nonlocal renewals
        renewals += 1
        if renewals > 30:
            enough.set()

    holding = asyncio.create_task(first.hold(renewed))
    waiting = asyncio.create_task(second.acquire())
    await asyncio.wait_for(enough.wait(), 30)
    assert not waiting.done()
    holding.cancel()
    acquired = await asyncio.wait_for(waiting, 30)
    assert (acquired.previous, holder(api)) == ("x", "y")


async def test_released_lease_is_taken_at_once(api: ScriptedKube):
    first, second = a_candidate(api, "x"), a_candidate(api, "y")
    first.timing = second.timing = Timing(lease_ms=600_000, renew_ms=500, retry_ms=10, call_ms=50)
    await first.acquire()
    await first.release()
    await asyncio.wait_for(second.acquire(), 30)
    assert holder(api) == "y"


async def test_released_lease_passes_on_its_duration(api: ScriptedKube):
    """The first call of a new leader, busy with its take-over, may take longer than a lease."""
    first, second = a_candidate(api, "x"), a_candidate(api, "y")
    first.timing = second.timing = Timing()
    first._pace.note(round(asyncio.get_running_loop().time() * 1000), 3_000)
    await first.acquire()
    await first.release()
    await second.acquire()
    assert second.timing == Timing().times(3)
    assert api.find(LEASES, "kafka", "main-0123")["spec"]["leaseDurationSeconds"] == 15
    await asyncio.sleep(61)
    assert second.timing == Timing(), "its own calls are quick"


async def test_starved_holder_states_longest_lease_early(api: ScriptedKube):
    holder, loop = a_candidate(api, "x"), asyncio.get_running_loop()
    holder.timing = Timing()
    holder.waited_ms = lambda: round(loop.time() * 500)
    await holder.acquire()
    holding = asyncio.create_task(holder.hold(lambda _: None))
    await asyncio.sleep(10)
    assert holder.timing == Timing().times(FACTOR_MAX)
    stated = api.find(LEASES, "kafka", "main-0123")["spec"]["leaseDurationSeconds"]
    assert stated == 5 * FACTOR_MAX
    holder.waited_ms = lambda: 0
    await asyncio.sleep(70)
    assert holder.timing == Timing()
    holding.cancel()


async def test_renewal_after_an_edit_states_the_present_timing(api: ScriptedKube):
    """The next renewal comes later than the Lease ends that was stated before."""
    holder = a_candidate(api, "x")
    holder.timing = Timing()
    await holder.acquire()
    await api.merge(LEASES, "kafka", "main-0123", {"metadata": {"labels": {"team": "a"}}})
    holder.waited_ms = lambda: 60_000
    holding = asyncio.create_task(holder.hold(lambda _: None))
    await asyncio.sleep(1)
    stated = api.find(LEASES, "kafka", "main-0123")
    assert stated["spec"]["leaseDurationSeconds"] == 5 * FACTOR_MAX
    assert stated["metadata"]["labels"] == {"team": "a"}
    holding.cancel()


async def test_lease_edited_since_renewal_is_released(api: ScriptedKube):
    lease = a_candidate(api, "x")
    await lease.acquire()
    await api.merge(LEASES, "kafka", "main-0123", {"metadata": {"labels": {"team": "a"}}})
    await lease.release()
    assert holder(api) == ""


async def test_lease_taken_by_another_is_left(api: ScriptedKube):
    lease = a_candidate(api, "x")
    await lease.acquire()
    await api.merge(LEASES, "kafka", "main-0123", {"spec": {"holderIdentity": "y"}})
    await lease.release()
    assert holder(api) == "y"


async def test_holder_that_cannot_renew_gives_up_in_time(api: ScriptedKube):
    lease = a_candidate(api, "x")
    await lease.acquire()
    api.fail = [HUNG] * 1_000
    loop = asyncio.get_running_loop()
    began = loop.time()
    assert await asyncio.wait_for(lease.hold(lambda _: None), 30) is LeaseLoss.UNRENEWED
    assert loop.time() - began < (FAST.lease_ms + FAST.call_ms) / 1000


async def test_holder_hears_that_another_took_the_lease(api: ScriptedKube):
    lease = a_candidate(api, "x")
    await lease.acquire()
    taken = api.find(LEASES, "kafka", "main-0123")
    api.put(LEASES, {**taken, "spec": {**taken["spec"], "holderIdentity": "y"}})
    assert await asyncio.wait_for(lease.hold(lambda _: None), 30) is LeaseLoss.TAKEN


async def test_renewal_with_lost_answer_is_recognised(api: ScriptedKube):
    """The write happened and its answer was lost: the next conflict is not a rival."""
    lease = a_candidate(api, "x")
    await lease.acquire()
    ours = api.find(LEASES, "kafka", "main-0123")
    api.put(LEASES, ours)
    renewed = asyncio.Event()
    holding = asyncio.create_task(lease.hold(lambda _: renewed.set()))
    await asyncio.wait_for(renewed.wait(), 30)
    assert not holding.done()
    holding.cancel()


async def test_dead_holders_lease_frees_after_unchanged_period(api: ScriptedKube):
    """Its own times may be of a clock that is hours away: they are not what counts."""
    await a_candidate(api, "x").acquire()
    found = api.find(LEASES, "kafka", "main-0123")
    ancient = {**found["spec"], "renewTime": "2001-01-01T00:00:00.000000Z"}
    api.put(LEASES, {**found, "spec": ancient})
    loop = asyncio.get_running_loop()
    began = loop.time()
    acquired = await asyncio.wait_for(a_candidate(api, "y").acquire(), 30)
    assert loop.time() - began >= FAST.lease_ms / 1000
    assert acquired.vacant_ms is not None


def test_dead_holders_lease_is_taken_within_seconds() -> None:
    """As docs/guarantees.md says: seen with the next look, free five seconds later, found so with
    the look after that."""
    timing = Timing()
    assert timing.retry_ms + timing.lease_ms + timing.retry_ms == 7_000
    assert timing.renew_ms + timing.call_ms < timing.lease_ms, "the holder has stepped down by then"


@pytest.mark.parametrize(
    ("took_ms", "timed_out", "lease_ms"),
    [(20, False, 5_000), (1_000, False, 5_000), (1_900, False, 10_000), (1_000, True, 10_000),
     (60_000, False, 30_000)],
)  # fmt: skip
def test_lease_lasts_five_of_its_slowest_calls(took_ms: int, timed_out: bool, lease_ms: int):
    pace = LeasePace(Timing())
    pace.note(1_000, took_ms, timed_out=timed_out)
    pace.note(1_001, 5)
    timing = pace.timing(2_000)
    assert timing.lease_ms == lease_ms
    assert timing.renew_ms + timing.call_ms < timing.lease_ms
    assert pace.timing(62_000) == Timing(), "short again after a quick minute"


class SlowKube(ScriptedKube):
    """Each call takes `takes_s`, and has no effect where its caller waits no longer."""

    takes_s = 2.0

    async def _slowly(self, timeout_s: float) -> None:
        await asyncio.sleep(min(self.takes_s, timeout_s))
        if self.takes_s > timeout_s:
            raise HUNG

    async def get(self, *args, timeout_s: float, **rest):
        await self._slowly(timeout_s)
        return await super().get(*args, timeout_s=timeout_s, **rest)

    async def create(self, *args, timeout_s: float, **rest):
        await self._slowly(timeout_s)
        return await super().create(*args, timeout_s=timeout_s, **rest)

    async def replace(self, *args, timeout_s: float, **rest):
        await self._slowly(timeout_s)
        return await super().replace(*args, timeout_s=timeout_s, **rest)


async def test_starved_operators_lose_their_lease_once_at_most():
    """Calls begin to take two seconds: no Lease of five could be renewed for as long as that
    went on."""
    slow = SlowKube()
    slow.takes_s = 0.01
    candidates = [a_candidate(slow, name) for name in "xy"]
    for lease in candidates:
        lease.timing = Timing()
    losses: list[str] = []
    leads = asyncio.Event()
    loop = asyncio.get_running_loop()
    renewed_s = 0.0

    def renewed(_: int) -> None:
        nonlocal renewed_s
        renewed_s = loop.time()

    async def lead(lease: Lease, name: str) -> None:
        while True:
            await lease.acquire()
            leads.set()
            await lease.hold(renewed)
            losses.append(name)

    leading = [
        asyncio.create_task(lead(lease, name)) for lease, name in zip(candidates, "xy", strict=True)
    ]
    await asyncio.wait_for(leads.wait(), 30)
    slow.takes_s = 2.0
    await asyncio.sleep(600)
    assert len(losses) <= 1
    assert loop.time() - renewed_s < 30, "nobody leads"
    for task in leading:
        assert not task.done()
        task.cancel()


async def test_candidate_heeds_the_stated_duration(api: ScriptedKube):
    await a_candidate(api, "x").acquire()
    found = api.find(LEASES, "kafka", "main-0123")
    api.put(LEASES, {**found, "spec": {**found["spec"], "leaseDurationSeconds": 10**9}})
    other = a_candidate(api, "y")
    loop = asyncio.get_running_loop()
    began = loop.time()
    await asyncio.wait_for(other.acquire(), 30)
    waited_ms = 1000 * (loop.time() - began)
    assert waited_ms == pytest.approx(FAST.lease_ms * FACTOR_MAX, abs=2 * FAST.retry_ms)
