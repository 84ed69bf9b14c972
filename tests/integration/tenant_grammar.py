"""What a hostile client may do with its own names: a grammar, from which a seed draws.

A sentence is a principal and one to three acts that it does at the same time, each with parameters
of its own.  `mallory` has every right on topics and groups whose names begin with `mallory.`,
`nobody` has logged in and has no right, a stranger has not logged in.

Seeds from 1 to the number of FIRST are what has once disturbed others.  Seeds from 0 downwards are
the first attacks of the acts of LATER, in their order: one that is added gets the lowest seed.  All
others are drawn.

An act that is added must not change what the seeds in reports and tables mean.  So each seed draws
from EARLIER, which stays as it is; then each act of LATER, in its order, may take one of the
sentence's places, with the chance that a fair draw among it and those before it has.  Its dice are
the seed's, the place's and its name's alone.  A sentence with an act that is added as the n-th
differs from what it was; that is one place in n.  So: add at the end of LATER, and never change the
order or the choices of what is there.
"""

from __future__ import annotations

import asyncio
import dataclasses
import random
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from tests.integration import tenant_attacks as acts
from tests.integration import tenant_later_attacks as later
from tests.integration.tenant_client import Login, Place
from tests.integration.tenant_foe import MALLORY, MIB, NOBODY, PRINCIPALS, STRANGER, USERS, Foe

from plimsoll_wire.compression import GZIP, LZ4, SNAPPY, ZSTD


@dataclasses.dataclass(frozen=True, slots=True)
class Phrase:
    """One act with its parameters."""

    act: str
    parameters: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        return f"{self.act}({', '.join(f'{name}={value}' for name, value in self.parameters)})"


@dataclasses.dataclass(frozen=True, slots=True)
class Sentence:
    """What one seed does."""

    seed: int
    principal: str
    phrases: tuple[Phrase, ...]

    def __str__(self) -> str:
        return f"{self.principal}: {' + '.join(map(str, self.phrases))}"


@dataclasses.dataclass(frozen=True, slots=True)
class Production:
    """An act, which principals may do it, and from what its parameters are drawn."""

    act: Callable[..., Coroutine[Any, Any, None]]
    principals: tuple[str, ...]
    choices: dict[str, tuple[int, ...]]


FEW, SOME, MANY = (1, 2, 4), (4, 16, 40), (100, 200, 300)
EARLIER: dict[str, Production] = {
    "commits": Production(
        acts.commits,
        (MALLORY,),
        {"connections": FEW, "groups": (100, 2_500, 50_000), "rows": (1, 6)},
    ),
    "unread_offsets": Production(
        acts.unread_offsets,
        (MALLORY,),
        {"connections": SOME, "groups": (800, 5_000), "asked": (1, 50)},
    ),
    "half_requests": Production(
        acts.half_requests,
        USERS,
        {"connections": SOME, "kilobytes": (15, 1_024, 40_000), "crawl_ms": (50, 1_000, 5_000)},
    ),
    "parked_fetches": Production(
        acts.parked_fetches,
        USERS,
        {"connections": SOME, "partitions": (6, 1_000, 10_000), "wait_ms": (500, 30_000)},
    ),
    "unread_fetches": Production(
        acts.unread_fetches, (MALLORY,), {"connections": SOME, "polls": (1, 64)}
    ),
    "bombs": Production(
        acts.bombs,
        USERS,
        {"connections": FEW, "codec": (GZIP, SNAPPY, LZ4, ZSTD), "uneven": (0, 1)},
    ),
    "produces": Production(
        acts.produces, USERS, {"connections": FEW, "kilobytes": (1, 60, 150), "pause_ms": (20, 200)}
    ),
    "times": Production(acts.times, USERS, {"connections": FEW, "rows": (1, 6, 5_000)}),
    "topics": Production(
        acts.topics, USERS, {"connections": FEW, "made": (1, 20), "partitions": (1, 10, 1_000)}
    ),
    "metadata": Production(
        acts.metadata, USERS, {"connections": FEW, "names": (1, 100, 5_000), "create": (0, 1)}
    ),
    "configs": Production(
        acts.configs, USERS, {"connections": FEW, "names": (1, 100, 3_000), "documented": (0, 1)}
    ),
    "groups_listed": Production(
        acts.groups_listed, USERS, {"connections": FEW, "named": (1, 100, 5_000)}
    ),
    "arrays": Production(
        acts.arrays,
        USERS,
        {"connections": (*SOME, 100), "items": (1_000, 19_000, 150_000), "deaf": (0, 1)},
    ),
    "members": Production(
        acts.members, USERS, {"connections": SOME, "groups": (1, 50, 5_000), "kilobytes": (1, 60)}
    ),
    "connections_held": Production(
        acts.connections_held, PRINCIPALS, {"connections": (*SOME, *MANY)}
    ),
    "reconnects": Production(acts.reconnects, PRINCIPALS, {"connections": FEW}),
    "anything": Production(
        acts.anything, PRINCIPALS, {"connections": SOME, "damaged": (0, 1), "deaf": (0, 1)}
    ),
    "half_handshakes": Production(
        acts.half_handshakes, (STRANGER,), {"connections": (*SOME, *MANY), "noise": (0, 1)}
    ),
    "wrong_passwords": Production(
        acts.wrong_passwords, (STRANGER,), {"connections": SOME, "users": (1, 100_000)}
    ),
    "before_login": Production(
        acts.before_login, PRINCIPALS, {"connections": SOME, "size": (100, 50_000, 50 * MIB)}
    ),
    "producers": Production(acts.producers, USERS, {"connections": FEW}),
}
LATER: dict[str, Production] = {
    "tiny_segments": Production(
        later.tiny_segments,
        (MALLORY,),
        {
            "connections": FEW,
            "partitions": (6, 50),
            "kilobytes": (1, 30, 60),
            "declared": (0, 1),
        },
    ),
    "static_rejoins": Production(
        later.static_rejoins,
        (MALLORY,),
        {"connections": FEW, "instances": (1, 100), "kilobytes": (1, 60)},
    ),
    "assignments": Production(
        later.assignments,
        (MALLORY,),
        {"connections": SOME, "rows": (1, 1_000), "kilobytes": (1, 100)},
    ),
    "validated": Production(
        later.validated,
        USERS,
        {"connections": FEW, "rows": (1, 100, 2_000), "partitions": (1, 10_000)},
    ),
    "altered": Production(later.altered, (MALLORY,), {"connections": FEW, "topics": (1, 20, 100)}),
    "grown": Production(later.grown, (MALLORY,), {"connections": FEW, "step": (1, 10, 100)}),
    "objects": Production(
        later.objects,
        (MALLORY,),
        {"connections": FEW, "names": (5, 100, 2_000), "rules": (1, 50, 500)},
    ),
    "tagged": Production(
        later.tagged,
        PRINCIPALS,
        {"connections": SOME, "tags": (1, 100, 10_000), "size": (0, 100, 1_000)},
    ),
    "records_deleted": Production(
        later.records_deleted, USERS, {"connections": FEW, "rows": (1, 6, 5_000)}
    ),
    "rules": Production(later.rules, USERS, {"connections": FEW, "rows": (1, 100, 5_000)}),
    "passwords": Production(
        later.passwords,
        USERS,
        {"connections": FEW, "rows": (1, 100, 5_000), "iterations": (4_096, 16_384)},
    ),
    "times_of_many": Production(
        later.times_of_many, (MALLORY,), {"connections": FEW, "partitions": (100, 1_000)}
    ),
    "slow_frames": Production(
        later.slow_frames, PRINCIPALS, {"connections": (*SOME, *MANY), "crawl_ms": (10, 1_000)}
    ),
    "opened_and_closed": Production(
        later.opened_and_closed, (STRANGER,), {"connections": (*FEW, 40), "tls": (0, 1)}
    ),
    "half_logins": Production(
        later.half_logins, (STRANGER,), {"connections": (*SOME, *MANY), "held": (0, 1)}
    ),
    "relogins": Production(later.relogins, USERS, {"connections": SOME}),
    "fetch_sessions": Production(
        later.fetch_sessions, USERS, {"connections": SOME, "partitions": (1, 6, 5_000)}
    ),
    "coordinators": Production(
        later.coordinators, USERS, {"connections": FEW, "keys": (1, 1_000, 19_000)}
    ),
    "all_offsets": Production(
        later.all_offsets,
        (MALLORY,),
        {"connections": SOME, "groups": (100, 5_000), "asked": (1, 50, 1_000)},
    ),
    "groups_deleted": Production(
        later.groups_deleted, (MALLORY,), {"connections": FEW, "named": (1, 100, 5_000)}
    ),
    "log_dirs": Production(later.log_dirs, USERS, {"connections": FEW, "rows": (0, 6, 5_000)}),
}
"""Added after EARLIER, in this order."""
GRAMMAR = {**EARLIER, **LATER}


def _first(principal: str, act: str, **parameters: int) -> tuple[str, Phrase]:
    return principal, Phrase(act, tuple(parameters.items()))


FIRST: tuple[tuple[str, Phrase], ...] = (
    _first(MALLORY, "unread_offsets", connections=16, groups=800, asked=50),
    _first(MALLORY, "commits", connections=4, groups=2_500, rows=6),
    _first(NOBODY, "half_requests", connections=4, kilobytes=40_000, crawl_ms=5_000),
    _first(MALLORY, "parked_fetches", connections=40, partitions=10_000, wait_ms=30_000),
    _first(NOBODY, "bombs", connections=4, codec=ZSTD, uneven=1),
    _first(MALLORY, "bombs", connections=4, codec=ZSTD, uneven=1),
    _first(MALLORY, "times", connections=4, rows=5_000),
    _first(MALLORY, "topics", connections=2, made=20, partitions=10),
    _first(NOBODY, "metadata", connections=1, names=100, create=0),
    _first(MALLORY, "metadata", connections=2, names=100, create=1),
    _first(MALLORY, "groups_listed", connections=4, named=100),
    _first(MALLORY, "configs", connections=4, names=3_000, documented=1),
    _first(STRANGER, "connections_held", connections=300),
    _first(STRANGER, "half_handshakes", connections=300, noise=0),
    _first(STRANGER, "wrong_passwords", connections=40, users=100_000),
    _first(MALLORY, "arrays", connections=100, items=19_000, deaf=0),
    _first(NOBODY, "arrays", connections=100, items=150_000, deaf=0),
)
"""Of seeds 1, 2, 3 and so on."""

FIRST_LATER: tuple[tuple[str, Phrase], ...] = (
    _first(MALLORY, "tiny_segments", connections=4, partitions=50, kilobytes=60, declared=1),
    _first(MALLORY, "static_rejoins", connections=4, instances=100, kilobytes=60),
    _first(MALLORY, "assignments", connections=16, rows=1_000, kilobytes=1),
    _first(MALLORY, "validated", connections=4, rows=2_000, partitions=10_000),
    _first(MALLORY, "altered", connections=4, topics=100),
    _first(MALLORY, "grown", connections=4, step=100),
    _first(MALLORY, "objects", connections=4, names=100, rules=50),
    _first(NOBODY, "tagged", connections=40, tags=10_000, size=100),
    _first(MALLORY, "records_deleted", connections=4, rows=5_000),
    _first(MALLORY, "rules", connections=4, rows=5_000),
    _first(NOBODY, "passwords", connections=4, rows=5_000, iterations=16_384),
    _first(MALLORY, "times_of_many", connections=4, partitions=1_000),
    _first(STRANGER, "slow_frames", connections=300, crawl_ms=10),
    _first(STRANGER, "opened_and_closed", connections=40, tls=0),
    _first(STRANGER, "half_logins", connections=300, held=1),
    _first(NOBODY, "relogins", connections=40),
    _first(MALLORY, "fetch_sessions", connections=40, partitions=5_000),
    _first(MALLORY, "coordinators", connections=4, keys=19_000),
    _first(MALLORY, "all_offsets", connections=40, groups=5_000, asked=1_000),
    _first(MALLORY, "groups_deleted", connections=4, named=5_000),
    _first(MALLORY, "log_dirs", connections=4, rows=5_000),
)
"""Of seeds 0, -1, -2 and so on."""
LOWEST = 1 - len(FIRST_LATER)
"""The seed from which on all that is named is attacked, each once, and then what is drawn."""


def drawn(seed: int) -> Sentence:
    """The same one for the same seed."""
    if LOWEST <= seed <= len(FIRST):
        principal, phrase = FIRST[seed - 1] if seed > 0 else FIRST_LATER[-seed]
        return Sentence(seed, principal, (phrase,))
    dice = random.Random(seed)
    principal = dice.choice(PRINCIPALS)
    possible = _possible(EARLIER, principal)
    chosen = dice.sample(possible, dice.choice((1, 1, 2, 3)))
    places = [_phrase(name, dice) for name in chosen]
    return Sentence(seed, principal, _with_later(seed, principal, places))


def drawn_of(act: str, seed: int) -> Sentence:
    """That act alone, by a principal and with parameters that the seed draws."""
    dice = random.Random(f"{act} {seed}")
    return Sentence(seed, dice.choice(GRAMMAR[act].principals), (_phrase(act, dice),))


def _with_later(seed: int, principal: str, places: list[Phrase]) -> tuple[Phrase, ...]:
    """Each later act in its order may take a place, once."""
    before = len(_possible(EARLIER, principal))
    for number, name in enumerate(_possible(LATER, principal), before + 1):
        for place in range(len(places)):
            dice = random.Random(f"{seed} {place} {name}")
            if dice.randrange(number) == 0:
                places[place] = _phrase(name, dice)
                break
    return tuple(places)


def _possible(grammar: dict[str, Production], principal: str) -> list[str]:
    return [name for name, one in grammar.items() if principal in one.principals]


def _phrase(name: str, dice: random.Random) -> Phrase:
    choices = GRAMMAR[name].choices
    return Phrase(name, tuple((one, dice.choice(values)) for one, values in choices.items()))


async def play(
    sentence: Sentence, place: Place, logins: dict[str, Login], did: dict[str, Counter[str]]
) -> None:
    """Until it is cancelled; `did` is told of each act what it came to."""
    async with asyncio.TaskGroup() as group:
        for number, phrase in enumerate(sentence.phrases):
            login = logins.get(sentence.principal)
            foe = Foe(place, login, f"{sentence.seed} {number}")
            did[phrase.act] = foe.did
            group.create_task(GRAMMAR[phrase.act].act(foe, **dict(phrase.parameters)))
