"""Every pool that principals share is told of."""

import ast
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

from plimsoll_broker.handlers.metadata import wanted_names
from plimsoll_broker.node.assembly import _tell_of_pools
from plimsoll_broker.security.audit_log import AuditLog
from plimsoll_broker.server.client_memory import MIB, Budgets, ClientMemory, PrincipalHoldings
from plimsoll_broker.server.fair_work import FairWork
from plimsoll_core.groups.memory import GroupMemory, ShardMemory
from plimsoll_core.quotas.fair_pool import FairPool
from plimsoll_core.transactions.memory import TransactionMemory

ROOT = Path(__file__).parents[2]
MADE_IN = {
    "broker_image/plimsoll_broker/server/client_memory.py": 2,  # replies, requests
    "broker_image/plimsoll_broker/server/connection_limits.py": 1,  # connections of …
    "broker_image/plimsoll_broker/server/fair_work.py": 2,  # threads, long work
    "broker_image/plimsoll_broker/handlers/metadata.py": 1,  # topics on demand
    # Told of where the log store is assembled.
    "broker_image/plimsoll_broker/storage/segment_room.py": 1,
    "core/plimsoll_core/groups/memory.py": 3,  # group memory, groups, members
    "core/plimsoll_core/transactions/memory.py": 1,  # transaction memory
    "core/plimsoll_process/log_lines.py": 1,  # audit
    # What threads have on the way to the loop's: there for a turn of the loop.
    "broker_image/plimsoll_broker/security/audit_log.py": 1,
    # The controller's, for one decision; brokers tell of their partitions.
    "core/plimsoll_core/controller/security/security_share.py": 1,
    "core/plimsoll_core/controller/topics/topic_creation.py": 1,
}
"""How many pools each module makes, all of which are told of below."""


class Shard:
    def __init__(self, memory: GroupMemory) -> None:
        self.state = type("State", (), {"memory": ShardMemory(memory)})()


class Groups:
    def __init__(self) -> None:
        self.memory = GroupMemory()
        self.of = [Shard(self.memory), Shard(self.memory)]
        served = SimpleNamespace(memory=TransactionMemory())
        self.transactions = SimpleNamespace(coordinators=served)

    def shards(self) -> list[Shard]:
        return self.of


def made() -> Iterator[str]:
    for folder in ("broker_image/plimsoll_broker", "core"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "FairPool":
                    yield str(path.relative_to(ROOT))


def test_every_pool_is_told_of() -> None:
    found = list(made())
    assert {path: found.count(path) for path in found} == MADE_IN
    holdings = ClientMemory(Budgets(replies=MIB, requests=MIB, frame=MIB)).holdings
    groups, work, audit = Groups(), FairWork(), AuditLog(0)
    wanted = wanted_names()
    _tell_of_pools(holdings, groups, work, audit, wanted)  # type: ignore[arg-type]
    groups.of[1].state.memory.groups.take("User:a", 7)
    work.threads.take("User:a", 1)
    wanted.take("User:a", 3)
    states = dict(holdings.states())
    assert set(states) == {
        *("replies", "requests", "group memory", "groups", "members", "threads", "long work"),
        *("audit", "transaction memory", "topics on demand"),
    }
    assert (states["groups"].used, states["threads"].used) == (7, 1)
    assert states["topics on demand"].used == 3
    assert holdings.of("User:a")["groups"] == 7


def test_fullest_pool_is_reported_with_refusals() -> None:
    holdings = PrincipalHoldings()
    pools = [FairPool(10), FairPool(10)]
    holdings.add_several("groups", lambda: pools)
    pools[1].take("User:a", 4)
    assert not pools[0].admit("User:b", 9)
    assert not pools[1].admit("User:a", 9)
    ((name, state),) = holdings.states()
    assert (name, state.used, state.most, state.refused) == ("groups", 4, 4, 2)
    pools.clear()
    assert not list(holdings.states())
