"""Groups of `bench.group_client`'s members: find the coordinator, and wait until all are in.

Used by `bench.groups`; a row's limit of time ends every wait here.
"""

from __future__ import annotations

import asyncio
from itertools import cycle

from bench.group_client import Member
from bench.group_systems import System, address

from plimsoll_wire.api_versions import ApiKey

TRY_EVERY_S = 0.02
ASK_S = 1.0
STAY_S = 0.25


async def coordinator(system: System, group: str, brokers: tuple[int, ...] = (0, 1, 2)) -> int:
    """Asked of those until one of them knows."""
    for broker in cycle(brokers):
        try:
            async with asyncio.timeout(ASK_S):
                asking = Member(group)
                await asking.connect(*address(system, broker))
                values = {"key_type": 0, "coordinator_keys": [group]}
                (found,) = (await asking.ask(ApiKey.FIND_COORDINATOR, 4, values)).coordinators
                asking.close()
            if not int(found.error_code):
                return int(found.node_id)
        except (OSError, asyncio.IncompleteReadError):
            pass
        await asyncio.sleep(TRY_EVERY_S)
    raise AssertionError("a cycle has no end")


async def members(system: System, group: str, count: int) -> list[Member]:
    """Connected, with a part each."""
    where = address(system, await coordinator(system, group))
    made = [Member(group) for _ in range(count)]
    for one in made:
        await one.connect(*where)
    within: list[Member] = []
    await asyncio.gather(*(_stays(one, within, count) for one in made))
    await _settled(made)
    return made


async def joined_again(group: list[Member]) -> float:
    """All join again, the leader first: a stable group just tells a follower its generation again,
    and the others would wait for it.  Seconds from the last JoinGroup to the last part."""
    leader = str(group[0].joined.leader)
    ordered = sorted(group, key=lambda one: one.member_id != leader)
    within: list[Member] = []
    done = await asyncio.gather(*(_stays(one, within, len(group)) for one in ordered))
    took_s = max(done) - max(one.asked_s for one in group)
    await _settled(group)
    return took_s


async def _stays(member: Member, within: list[Member], count: int, *, joins: bool = True) -> float:
    """Stay in the group until all members are in, since the others wait for one that has its part
    already. Return when it got its last part."""
    done_s = await member.rebalance() if joins else 0.0
    within.append(member)
    while len(within) < count:
        await asyncio.sleep(STAY_S)
        if await member.heartbeat():
            done_s = await member.rebalance()
    return done_s


async def _settled(group: list[Member]) -> None:
    """Wait until all members are of the newest generation; those that are already rejoin with the
    others."""
    while True:
        codes = await asyncio.gather(*(one.heartbeat() for one in group))
        if not any(codes):
            return
        within: list[Member] = []
        pairs = zip(group, codes, strict=True)
        await asyncio.gather(
            *(_stays(one, within, len(group), joins=bool(code)) for one, code in pairs)
        )
