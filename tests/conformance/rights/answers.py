"""Asks every request of the matrix as every holder, and says what each was told.

Of an answer there stays what rights decide: error codes, the names that are visible, and the
operations that a client is told it may do (KIP-430).  The order of lists does not: Kafka shuffles.
Kafka's own answers lie in `kafka.json`, which `python -m tests.conformance.rights --write` makes.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import re
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

from tests.conformance.rights.holders import HOLDERS, rules, user_of
from tests.conformance.rights.requests import (
    GROUP,
    REQUESTS,
    TOPICS,
    TRANSACTION,
    Request,
    committed,
)
from tests.plimsoll_broker.security.secured import Closed, Connection

from plimsoll_core.errors import Code
from plimsoll_core.security.scram import salted_password
from plimsoll_wire.api_versions import SUPPORTED, ApiKey
from plimsoll_wire.messages import encode_request

RECORDED = Path(__file__).with_name("kafka.json")
Told = dict[str, dict[str, str]]
"""By request and holder."""
PASSWORD, SALT, ITERATIONS = "secret", b"0123456789abcdef", 4096
RULES_AT_ONCE = 100
WAIT_S = 60.0
_SHA_512 = 2
_NOT_YET = (Code.COORDINATOR_LOAD_IN_PROGRESS, Code.COORDINATOR_NOT_AVAILABLE, Code.NOT_COORDINATOR)
_NAMES = frozenset({"name", "topic", "topic_name", "group_id", "resource_name", "key", "user"})
_LEFT_OUT = frozenset(
    {"configs", "brokers", "members", "api_keys", "supported_features", "finalized_features"}
)
_OTHERS = "all others"
_INTERNAL = frozenset({"__consumer_offsets", "__transaction_state"})


class Peer:
    """A cluster of one broker: `open` asks nobody who he is, and takes all for super users;
    `secured` asks for a SCRAM login.  Both are ports of this machine."""

    def __init__(self, open_port: int, secured_port: int) -> None:
        self.open_port = open_port
        self.secured_port = secured_port
        self.ids: dict[str, UUID] = {}
        self._stack = AsyncExitStack()
        self._admin: Connection | None = None

    async def __aenter__(self) -> Peer:
        self._admin = await self._connected(self.open_port)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    async def _connected(self, port: int) -> Connection:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        self._stack.callback(writer.close)
        return Connection(reader, writer)

    async def ask(self, key: ApiKey, values: Mapping[str, Any], version: int = -1) -> Any:
        """As a super user."""
        assert self._admin is not None
        asked = SUPPORTED[key].last if version < 0 else version
        return await self._admin.ask(key, asked, dict(values))

    async def prepare(self) -> None:
        """Users and their rules; topics and offsets."""
        salted = salted_password("SCRAM-SHA-512", PASSWORD, SALT, ITERATIONS)
        made = {"mechanism": _SHA_512, "salt": SALT, "iterations": ITERATIONS}
        upsertions = [
            {"name": user_of(holder), **made, "salted_password": salted} for holder in HOLDERS
        ]
        told = await self.ask(
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS, {"deletions": [], "upsertions": upsertions}
        )
        assert {int(one.error_code) for one in told.results} == {0}, told
        every = rules()
        for at in range(0, len(every), RULES_AT_ONCE):
            creations = every[at : at + RULES_AT_ONCE]
            told = await self.ask(ApiKey.CREATE_ACLS, {"creations": creations})
            assert {int(one.error_code) for one in told.results} == {0}, told
        await self.put_back()
        await self.wait_for_producers()

    async def put_back(self) -> None:
        """What requests took away."""
        sizes = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        topics = [{"name": name, **sizes} for name in TOPICS]
        await self.ask(
            ApiKey.CREATE_TOPICS, {"topics": topics, "timeout": 10_000, "validate_only": False}
        )
        async with asyncio.timeout(WAIT_S):
            while True:
                if await self._has_leaders() and await self._has_offsets():
                    return
                await asyncio.sleep(0.05)

    async def _has_leaders(self) -> bool:
        asked = [{"name": name, "topic_id": None} for name in TOPICS]
        told = await self.ask(
            ApiKey.METADATA,
            {
                "topics": asked,
                "allow_auto_topic_creation": False,
                "include_topic_authorized_operations": False,
            },
            12,
        )
        self.ids = {topic.name: topic.topic_id for topic in told.topics if topic.topic_id}
        codes = {int(one.error_code) for topic in told.topics for one in (topic, *topic.partitions)}
        return codes == {0}

    async def _has_offsets(self) -> bool:
        asked = {"key_type": 0, "coordinator_keys": [GROUP]}
        told = await self.ask(ApiKey.FIND_COORDINATOR, asked, 4)
        told = await self.ask(ApiKey.OFFSET_COMMIT, committed(GROUP, *TOPICS))
        return {int(one.error_code) for topic in told.topics for one in topic.partitions} == {0}

    async def wait_for_producers(self) -> None:
        """Until ids of producers are given out, and coordinators of transactions there; where there
        are none, it is told at once."""
        wanted = {"transaction_timeout": 1000, "producer_id": -1, "producer_epoch": -1}
        async with asyncio.timeout(WAIT_S):
            for name in (None, TRANSACTION, "other"):
                key = {"key_type": 1, "coordinator_keys": [name or ""]}
                while True:
                    if name is not None:
                        told = (await self.ask(ApiKey.FIND_COORDINATOR, key, 4)).coordinators[0]
                    if name is None or not told.error_code:
                        asked = {"transactional_id": name, **wanted}
                        told = await self.ask(ApiKey.INIT_PRODUCER_ID, asked)
                    if told.error_code not in _NOT_YET:
                        break
                    await asyncio.sleep(0.05)

    async def logged_in(self, holder: str) -> Connection:
        """A connection; tried for a while: a user that was just made is not known everywhere."""
        async with asyncio.timeout(WAIT_S):
            while True:
                found = await self._connected(self.secured_port)
                if not (await found.log_in(user_of(holder), PASSWORD)).error_code:
                    return found
                await asyncio.sleep(0.1)


async def every_answer(peer: Peer, holders: Sequence[str] = tuple(HOLDERS)) -> Told:
    """Of a cluster that was prepared.  Each holder has one connection."""
    told: Told = {request.name: {} for request in REQUESTS}
    connections = {holder: await peer.logged_in(holder) for holder in holders}
    for request in REQUESTS:
        for holder in holders:
            try:
                answer = await _answer(peer, connections[holder], request)
            except Closed:
                answer = "closed"
                connections[holder] = await peer.logged_in(holder)
            told[request.name][holder] = answer
            if request.changes and ":0" in answer:
                await peer.put_back()
    return told


async def _answer(peer: Peer, connection: Connection, request: Request) -> str:
    body = encode_request(request.key, request.version, request.values(peer.ids))
    connection.send(request.key, request.version, body)
    answer = await connection.answer(request.key, request.version)
    names = {topic_id: name for name, topic_id in peer.ids.items()}
    return json.dumps(seen(answer, names), separators=(",", ":"))


def seen(value: Any, names: Mapping[UUID, str]) -> Any:
    """What rights decide of an answer; `names` of topics by their ids."""
    if not dataclasses.is_dataclass(value):
        return value
    found: dict[str, Any] = {}
    for field in dataclasses.fields(value):
        one = getattr(value, field.name)
        if field.name in _LEFT_OUT:
            continue
        if field.name.endswith("error_code"):
            found[_short(field.name)] = int(one)
        elif field.name in _NAMES or field.name.endswith("authorized_operations"):
            found[_short(field.name)] = one
        elif field.name == "topic_id":
            found["id"] = None if one is None or not one.int else names.get(one, "another")
        elif isinstance(one, tuple):
            parts = [seen(item, names) for item in one if dataclasses.is_dataclass(item)]
            shown = [p for p in parts if p and not _INTERNAL.intersection(map(str, p.values()))]
            if shown:
                found[field.name] = sorted(shown, key=repr)
        elif dataclasses.is_dataclass(one) and (part := seen(one, names)):
            found[field.name] = part
    return found


def _short(name: str) -> str:
    """In the file."""
    return name.replace("error_code", "code").replace("authorized_operations", "may")


# --- the file -------------------------------------------------------------------------------------


def written(told: Told) -> str:
    """Answers with those who are told them, for people to read; the most frequent one is that of
    all others."""
    lines = []
    for request, answers in told.items():
        holders: dict[str, list[str]] = {}
        for holder, answer in answers.items():
            holders.setdefault(answer, []).append(holder)
        holders[max(holders, key=lambda answer: len(holders[answer]))] = [_OTHERS]
        rows = ",\n".join(
            f"  [{json.dumps(answer)},\n   {json.dumps(those, ensure_ascii=False)}]"
            for answer, those in holders.items()
        )
        lines.append(f" {json.dumps(request)}: [\n{rows}\n ]")
    return "{\n" + ",\n".join(lines) + "\n}\n"


def read(text: str) -> Told:
    """What was written, of all holders."""
    told: Told = {}
    for request, rows in json.loads(text).items():
        by_holder = {holder: answer for answer, those in rows for holder in those}
        others = by_holder.pop(_OTHERS)
        told[request] = dict.fromkeys(HOLDERS, others) | by_holder
    return told


def differences(ours: Told, kafkas: Told) -> list[str]:
    """A sentence each."""
    return [
        f"{request} of who may {holder}: {answer}; Kafka: {kafkas[request][holder]}"
        for request, answers in ours.items()
        for holder, answer in answers.items()
        if answer != kafkas[request][holder]
    ]


_NO_TRANSACTIONS = re.compile(r'"code":[03]\b')
_OF_TRANSACTIONS = (
    "INIT_PRODUCER_ID v5 of a transaction",
    "FIND_COORDINATOR v4 of transactions",
)


def as_stated(kafkas: Told) -> Told:
    """Kafka's answers with the differences that `docs/compatibility.md` states: who may use a
    transaction is told that there are none; and a refusal names no users that have no names."""
    told = {request: dict(answers) for request, answers in kafkas.items()}
    for request in _OF_TRANSACTIONS:
        for holder, answer in told[request].items():
            told[request][holder] = _NO_TRANSACTIONS.sub('"code":42', answer)
    nameless = ',"results":[{"user":"","code":31}]'
    credentials = told["DESCRIBE_USER_SCRAM_CREDENTIALS v0"]
    credentials |= {holder: answer.replace(nameless, "") for holder, answer in credentials.items()}
    return told
