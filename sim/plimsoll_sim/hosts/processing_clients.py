"""Simulated processors: transactional producers that read inputs, write what they make of them, and
commit the position in the same transaction.

An input is a number, and its position is the group's committed offset. Each transaction begins at
the position that the group's coordinator tells, as a processor that was just given its partition,
and moves it one further. Every processor of a transactional id has the same group.
"""

from __future__ import annotations

import random
from typing import Any, Protocol

from plimsoll_core.errors import Code
from plimsoll_core.ids import ProducerLife
from plimsoll_sim.hosts.client_calls import Lost
from plimsoll_sim.hosts.clients import Habits, Witness
from plimsoll_sim.hosts.committers import commit_rows, coordinator_of, fetch_offset_values
from plimsoll_sim.hosts.transactional_clients import (
    CoordinatedWitness,
    TransactionalClient,
    TransactionPlan,
)
from plimsoll_wire.api_versions import ApiKey

TRIES = 30
_FENCED = (Code.INVALID_PRODUCER_EPOCH, Code.PRODUCER_FENCED, Code.INVALID_TXN_STATE)


class ProcessedWitness(Protocol):
    """Receives reports of the inputs that processors read."""

    def asks(self, group: str) -> int: ...
    def positioned(self, group: str, least: int, position: int) -> None: ...
    def processes(self, life: ProducerLife, number: int, group: str, position: int) -> None: ...


class ProcessingClient(TransactionalClient):
    """A processor of one group."""

    def __init__(
        self, habits: Habits, rng: random.Random, witness: Witness, told: CoordinatedWitness,
        plan: TransactionPlan, processed: ProcessedWitness,
    ) -> None:  # fmt: skip
        super().__init__(habits, rng, witness, told, plan)
        self._processed = processed
        self.group = f"{plan.transactional_id}.inputs"
        self._position = 0
        # The group's coordinator, as it was found last; None: it has to be looked for.
        self._group_host: str | None = None

    async def _ask_group(self, key: ApiKey, version: int, values: dict[str, Any]) -> Any:
        """Ask the group's coordinator once."""
        host, self._group_host = self._group_host, None
        if host is None:
            host = await coordinator_of(self, self._rng, self.group)
        reply = await self.ask(await self.to(host), key, version, values)
        self._group_host = host
        return reply

    async def _again(self) -> None:
        """Wait a little before the same question; the group may have another coordinator then."""
        self._group_host = None
        await self.think()

    async def begin_inputs(self) -> None:
        """Learn the next input. Wait while an open transaction may move the position."""
        values = {
            **fetch_offset_values(self.group, self.at.topic, 0),
            "require_stable": True,
        }
        for _ in range(TRIES):
            least = self._processed.asks(self.group)
            reply = await self._ask_group(ApiKey.OFFSET_FETCH, 7, values)
            rows = [row for topic in reply.topics for row in topic.partitions]
            codes = {int(reply.error_code), *(int(row.error_code) for row in rows)}
            if codes == {int(Code.NONE)}:
                self._position = max(int(rows[0].committed_offset), 0)
                self._processed.positioned(self.group, least, self._position)
                self._processed.processes(self.life, self.number, self.group, self._position)
                return
            await self._again()
        raise Lost("no position")

    async def end_inputs(self) -> None:
        """Commit the position behind the input with the transaction."""
        values: dict[str, Any] = {
            "transactional_id": self.transactional_id,
            "producer_id": self.life.producer_id,
            "producer_epoch": self.life.epoch,
            "group_id": self.group,
        }
        for _ in range(TRIES):
            reply = await self.ask_coordinator(ApiKey.ADD_OFFSETS_TO_TXN, 3, values)
            if int(reply.error_code) != Code.CONCURRENT_TRANSACTIONS:
                break
            await self.think()
        self.check(int(reply.error_code))
        values |= {
            "generation_id": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": [{"name": self.at.topic, "partitions": commit_rows([0], self._position + 1)}],
        }
        for _ in range(TRIES):
            reply = await self._ask_group(ApiKey.TXN_OFFSET_COMMIT, 3, values)
            code = int(reply.topics[0].partitions[0].error_code)
            if code == Code.NONE:
                return
            if code in _FENCED:
                self.check(code)
            await self._again()
        raise Lost("the position is not committed")
