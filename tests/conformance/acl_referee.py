"""Random sets of ACLs, decided by Kafka's own `StandardAuthorizer` and by the index: equal answers.

`python -m tests.conformance.acl_referee 10000` decides so many sets with each version of Kafka that
is known, 200 questions each, and prints what differs.
"""

from __future__ import annotations

import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tests.conformance.kafka_jars import VERSIONS, KafkaJars, java_command, kafka_jars
from tests.plimsoll_core.security.acl_model import (
    CLIENT_HOSTS,
    HOSTS,
    NAMES,
    OPERATIONS,
    PRINCIPALS,
    TYPES,
)

from plimsoll_core.security.acl import Acl, AclPermission, Pattern
from plimsoll_core.security.acl_index import AclQuestion, index_of
from plimsoll_core.security.state import Authorization, SecurityState

SOURCE = Path(__file__).parent / "referee" / "Referee.java"
QUESTIONS = 200
ASKED_NAMES = ("a", "ab", "abc", "abcd", "b", "c", "ba", "hardcode")
KAFKAS_HOST = "2001:db8:0:0:0:0:0:1"
"""As Java spells the one IPv6 address. Kafka compares texts, and its brokers have no other."""
SETS_AT_ONCE = 500
TIMEOUT_S = 300


def a_set(chance: random.Random) -> tuple[bool, list[Acl]]:
    """Whether everybody may where there is no rule, and the rules."""
    drawn = {
        Acl(
            resource=chance.choice(TYPES),
            name=chance.choice(NAMES),
            pattern=chance.choice(list(Pattern)),
            principal=chance.choice(PRINCIPALS),
            host=chance.choice(HOSTS),
            operation=chance.choice(OPERATIONS),
            permission=chance.choice(list(AclPermission)),
        )
        for _ in range(chance.randrange(13))
    }
    return chance.random() < 0.3, sorted(drawn, key=lambda one: one.order)


def questions(chance: random.Random) -> Iterator[tuple[str, AclQuestion]]:
    for number in range(QUESTIONS):
        asked = AclQuestion(
            principal=chance.choice(PRINCIPALS[:2]),
            host=chance.choice(CLIENT_HOSTS),
            operation=chance.choice(OPERATIONS[1:]),
            resource=chance.choice(TYPES),
            name=chance.choice(ASKED_NAMES),
        )
        yield ("ANY" if number % 5 == 0 else "ASK"), asked


def ours(everyone: bool, acls: list[Acl], asked: list[tuple[str, AclQuestion]]) -> list[bool]:
    security = SecurityState(
        authorization=Authorization(allow_everyone_if_no_acl=everyone), index=index_of(acls)
    )
    return [
        security.allows(one)
        if kind == "ASK"
        else security.allows_on_any(one.principal, one.host, one.operation, one.resource)
        for kind, one in asked
    ]


def spelled_by_kafka(host: str) -> str:
    return KAFKAS_HOST if ":" in host else host


def _rule(acl: Acl) -> str:
    words = (acl.resource.name, acl.name, acl.pattern.name, acl.principal)
    decision = (acl.operation.name, acl.permission.name)
    return "\t".join(("ACL", *words, spelled_by_kafka(acl.host), *decision))


def lines(everyone: bool, acls: list[Acl], asked: list[tuple[str, AclQuestion]]) -> Iterator[str]:
    yield f"SET\t{str(everyone).lower()}"
    # Two of our rules may be one in Kafka's spelling, which its authorizer takes only once.
    yield from dict.fromkeys(_rule(acl) for acl in acls)
    yield "LOAD"
    for kind, one in asked:
        host = spelled_by_kafka(one.host)
        words = (kind, one.principal, host, one.operation.name, one.resource.name)
        yield "\t".join(words if kind == "ANY" else (*words, one.name))


class Referee:
    """One version's, compiled once."""

    def __init__(self, jars: KafkaJars, directory: Path) -> None:
        java = Path(java_command())
        self._command = [str(java), "-Xmx256m", "-XX:+UseSerialGC", "-cp"]
        self._command += [f"{jars.classpath}:{directory}", "Referee"]
        brief = ("-J-XX:+UseSerialGC", "-J-XX:TieredStopAtLevel=1")
        compile_ = [str(java.with_name("javac")), *brief, "-cp", jars.classpath]
        compile_ += ["-d", str(directory), str(SOURCE)]
        subprocess.run(compile_, check=True, capture_output=True, timeout=TIMEOUT_S)

    def decide(self, text: str) -> list[bool]:
        done = subprocess.run(
            self._command,
            input=text,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=True,
        )
        return [line == "1" for line in done.stdout.split()]


def differences(referee: Referee, seed: int, sets: int) -> tuple[int, list[str]]:
    """How many questions were asked, and each on which the two do not agree."""
    chance = random.Random(seed)
    drawn = [(*a_set(chance), list(questions(chance))) for _ in range(sets)]
    text = "\n".join(line for one in drawn for line in lines(*one)) + "\n"
    theirs = iter(referee.decide(text))
    found, count = [], 0
    for everyone, acls, asked in drawn:
        for (kind, one), mine in zip(asked, ours(everyone, acls, asked), strict=True):
            count += 1
            if next(theirs) != mine:
                rules = "; ".join(map(str, acls))
                found.append(
                    f"seed {seed}: {kind} {one}: ours {mine}; everyone {everyone}; {rules}"
                )
    return count, found


def main(sets: int) -> int:
    failed = 0
    for version in VERSIONS:
        with tempfile.TemporaryDirectory() as directory:
            referee = Referee(kafka_jars(version), Path(directory))
            asked = 0
            for seed in range(0, sets, SETS_AT_ONCE):
                count, found = differences(referee, seed, min(SETS_AT_ONCE, sets - seed))
                asked, failed = asked + count, failed + len(found)
                for line in found[:10]:
                    print(line)
            print(f"Kafka {version}: {sets} sets, {asked} questions, {failed} differ")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1_000))
