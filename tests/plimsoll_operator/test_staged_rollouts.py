"""A LogCluster's pools roll in their order, with a pause or an approval after the first one."""

from typing import Any

import pytest
from tests.plimsoll_operator import rolling
from tests.plimsoll_operator.builders import a_cluster
from tests.plimsoll_operator.rolling import NEW, Cluster, declare

from plimsoll_operator.api.broker_configs import spec_refusal
from plimsoll_operator.api.cluster_status import LogClusterStatus, RolloutStatus
from plimsoll_operator.api.conditions import timestamp
from plimsoll_operator.kube.resources import LOG_CLUSTERS, PODS
from plimsoll_operator.reconcile.registry import draft_of
from plimsoll_operator.status.status_writer import Target

MAIN = {"name": "main", "firstId": 0, "brokers": 2}
CANARY = {"name": "canary", "firstId": 100, "brokers": 1, "config": {"num.replica.fetchers": 2}}
POOLS = [MAIN, CANARY]
REPLICAS = ((0, 1, 100), (1, 100, 0))


class Staged:
    """Pool main has the brokers 0 and 1, pool canary has broker 100 and rolls first."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    async def roll(self, **rollout: Any) -> None:
        self.spec(**rollout)
        await self.cluster.look()

    def spec(self, **rollout: Any) -> None:
        order = {"order": ["canary"], **rollout}
        declare(self.cluster, **NEW, brokers={}, pools=POOLS, rollout=order)

    async def first_is_back(self) -> None:
        """The new pod of broker 100 is ready, and the broker is in sync."""
        (started,) = self.cluster.start_pods()
        assert started == 100
        self.cluster.take_part(100)
        ready = {"type": "Ready", "status": "True", "lastTransitionTime": self.at(0)}
        self.cluster.kube.put(PODS, {**self.cluster.pod(100), "status": {"conditions": [ready]}})
        await self.cluster.tick()
        await self.cluster.look()

    def at(self, seconds: int) -> str:
        return timestamp(1_800_000_000_000 + 1_000 * seconds)

    @property
    def grants(self) -> list[int]:
        return sorted(self.cluster.image.grants)

    @property
    def shown(self) -> tuple[RolloutStatus | None, str]:
        shown = draft_of(self.cluster.scene.term, Target(LOG_CLUSTERS, "kafka", "main"))
        assert shown is not None
        assert isinstance(shown.status, LogClusterStatus)
        conditions = {one.type: one for one in shown.status.conditions}
        return shown.status.rollout, conditions["Reconciling"].message


@pytest.fixture
async def staged() -> Staged:
    return Staged(await rolling.a_cluster(*REPLICAS, brokers={}, pools=POOLS))


async def test_pools_roll_in_their_order(staged: Staged) -> None:
    await staged.roll()
    assert staged.grants == [100]
    row, text = staged.shown
    assert row is not None
    assert (row.pool, row.next, row.until) == ("canary", "main", None)
    said = (
        "Pool canary (broker 100) is being restarted. Pool main is restarted next, once pool "
        "canary is in sync."
    )
    assert row.message == said
    assert text.endswith(said)
    wait = f"broker 100 of pool canary runs revision {staged.cluster.image.grants[100].revision}"
    assert staged.cluster.blocked == [
        (b, "EarlierPool", f"{wait} and is in sync everywhere") for b in (0, 1)
    ]
    await staged.first_is_back()
    assert staged.grants == [0]
    row, _ = staged.shown
    assert row is not None
    assert (row.pool, row.next) == ("main", None)


async def test_next_pool_waits_for_pause(staged: Staged) -> None:
    await staged.roll(pauseAfterFirst="30m")
    await staged.first_is_back()
    assert staged.grants == []
    row, text = staged.shown
    assert row is not None
    assert (row.pool, row.next, row.until) == (None, "main", staged.at(1_800))
    until = f"{staged.at(1_800)}, when all pods of pool canary have been ready for 30m"
    assert row.message == f"Pool main is restarted next, and waits until {until}."
    assert text.endswith(row.message)
    assert staged.cluster.blocked == [(b, "RolloutPause", until) for b in (0, 1)]
    staged.cluster.kube.server_ms += 1_799_000
    await staged.cluster.look()
    assert staged.grants == []
    staged.cluster.kube.server_ms += 1_000
    await staged.cluster.look()
    assert staged.grants == [0]


async def test_pause_begins_anew_with_unready_pod(staged: Staged) -> None:
    await staged.roll(pauseAfterFirst="30m")
    await staged.first_is_back()
    pod = staged.cluster.pod(100)
    staged.cluster.kube.put(PODS, {**pod, "status": {"conditions": []}})
    staged.cluster.kube.server_ms += 3_600_000
    await staged.cluster.look()
    assert staged.grants == []
    until = "all pods of pool canary have been ready for 30m"
    assert staged.cluster.blocked[0][1:] == ("RolloutPause", until)


async def test_next_pool_waits_for_approval(staged: Staged) -> None:
    await staged.roll(approval="Manual")
    await staged.first_is_back()
    assert staged.grants == []
    row, _ = staged.shown
    assert row is not None
    assert row.next == "main"
    until = f"spec.rollout.approved is {row.revision}; only pool canary is restarted before that"
    assert staged.cluster.blocked == [(b, "RolloutAwaitsApproval", until) for b in (0, 1)]
    await staged.roll(approval="Manual", approved="of-another-change")
    assert staged.grants == []
    await staged.roll(approval="Manual", approved=row.revision)
    assert staged.grants == [0]


async def test_nothing_is_shown_without_roll(staged: Staged) -> None:
    declare(staged.cluster, **rolling.OLD, brokers={}, pools=POOLS, rollout={"order": ["canary"]})
    await staged.cluster.look()
    row, _ = staged.shown
    assert (staged.grants, row) == ([], None)


async def test_change_of_later_pool_alone_rolls_at_once(staged: Staged) -> None:
    ready = {"type": "Ready", "status": "True", "lastTransitionTime": staged.at(-3_600)}
    staged.cluster.kube.put(PODS, {**staged.cluster.pod(100), "status": {"conditions": [ready]}})
    changed = [{**MAIN, "config": {"num.replica.fetchers": 3}}, CANARY]
    rollout = {"order": ["canary"], "pauseAfterFirst": "30m"}
    declare(staged.cluster, **rolling.OLD, brokers={}, pools=changed, rollout=rollout)
    await staged.cluster.look()
    assert staged.grants == [0]


@pytest.mark.parametrize(
    ("spec", "sentence"),
    [
        ({"rollout": {"order": ["main"]}}, "spec.pools, which is not set"),
        ({"pools": POOLS, "rollout": {"order": ["other"]}}, "names other, which is no pool"),
        (
            {
                "pools": POOLS,
                "rollout": {"order": ["main"], "approval": "Manual", "pauseAfterFirst": "1h"},
            },
            "Remove pauseAfterFirst, or set approval to Automatic",
        ),
    ],
)
def test_unusable_rollout_is_refused(spec: dict[str, Any], sentence: str) -> None:
    refusal = spec_refusal(a_cluster(**spec))
    assert refusal is not None
    assert sentence in refusal.message
