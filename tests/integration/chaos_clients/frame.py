"""What a client of chaos is: it works until it is told to stop, and remembers what it was told.

Clients that run in this process derive from `Writer` and `Reader` and do their work in `_work`.
Those of another language are programs: `PrintingWriter` and `PrintingReader` run one each and hear
what it prints, a JSON object a line:

- `{"acked": [partition, offset, number, key]}`; offset null: it was not told; key null: has none;
- `{"read": [partition, offset]}`;
- `{"refused": "why"}`: a commit, as the group goes on without the member;
- `{"failed": "why"}`: anything else that its user would see;
- `{"left": count}`: the producer's records that were never answered.

The program's value of record `number` begins with `number:`.  It stops when its standard input
ends: a producer flushes for 60 s at most, a consumer leaves the group.  `kinds.py` has the kinds of
clients by name; chaos.py checks what they were told.
"""

from __future__ import annotations

import json
import random
import subprocess
import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

PARTITIONS = 6
GOES_ON_S_MAX = 60.0
"""After the last fault, each client."""
PLAIN, COMPACTED, GROUP = "plain", "compacted", "readers"
SESSION_MS = 10_000
DELIVERY_MS = 300_000
"""How long a producer tries, and then gives up: more than any outage here lasts."""
STOPPED_BEFORE_S = 10.0
"""A program that hangs is ended so long before its client is given up."""
TEXT_BYTES = (10, 300)
COMMIT_EACH = 50
"""Offsets that a reader commits at."""


STALL_S_MIN = 1.0
"""Shorter ones are not kept."""


class Stall(NamedTuple):
    """From when to when a client got nothing done, in seconds of the monotonic clock."""

    began_s: float
    ended_s: float


class Record(NamedTuple):
    """As it was acknowledged, or read."""

    # None: acknowledged with one that was sent behind it, so that the client never heard it.
    offset: int | None
    key: bytes | None
    value: bytes


Records = dict[int, list[Record]]
"""By partition."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What all clients of a run share."""

    bootstrap: str
    # For clients' own logs and what they are built from.
    work: Path
    seed: int
    # Of the group: eager, or cooperative where the client can.
    cooperative: bool
    # Folders with the logins of a closed cluster's users; None: the cluster is open.
    writer: Path | None = None
    reader: Path | None = None
    # How long a producer tries, where its library can be told.
    delivery_ms: int = DELIVERY_MS


class Client(ABC):
    """A thread that works until it is told to stop."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.stop = threading.Event()
        # What its user would see, and no Apache Kafka would answer.
        self.failed: list[str] = []
        # When it last got something done, and the stalls until then that are worth a look.
        self.begun = threading.Event()
        self.last_s = time.monotonic()
        self.stalls: list[Stall] = []
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self.stop.set()
        self._thread.join(2 * GOES_ON_S_MAX)
        if self._thread.is_alive():
            self.failed.append("hangs when it is told to stop")

    def done(self) -> None:
        now_s = time.monotonic()
        if self.begun.is_set() and now_s - self.last_s >= STALL_S_MIN:
            self.stalls.append(Stall(self.last_s, now_s))
        self.begun.set()
        self.last_s = now_s

    def stalls_until(self, now_s: float) -> list[Stall]:
        """Those that began by then, one that lasts still among them."""
        ended = [Stall(one.began_s, min(one.ended_s, now_s)) for one in [*self.stalls]]
        last_s = self.last_s
        stalls = [one for one in ended if one.began_s < now_s]
        return [*stalls, Stall(last_s, now_s)] if now_s - last_s >= STALL_S_MIN else stalls

    @abstractmethod
    def _work(self) -> None: ...


class Writer(Client):
    """Some 150 records a second, each to the partition of its number or of its key."""

    def __init__(self, place: Place, topic: str, keys: int) -> None:
        super().__init__(f"producer of {topic}")
        self.place = place
        self.topic = topic
        self.keys = keys
        self.acked: Records = defaultdict(list)
        # Records that were never answered.
        self.left = 0


class Reader(Client):
    """A member of the group, which commits what it has read now and then."""

    def __init__(self, place: Place, number: int) -> None:
        super().__init__(f"consumer {number}")
        self.place = place
        self.number = number
        self.seen: dict[int, set[int]] = defaultdict(set)
        # Why commits were.
        self.refused: list[str] = []


def static_instance(number: int) -> str | None:
    """Of a member of the group: the second one is a static member."""
    return f"static-{number}" if number else None


def value_of(number: int, rng: random.Random) -> bytes:
    """Of a record: its number, and text of some length."""
    return b"%d:" % number + b"." * rng.randrange(*TEXT_BYTES)


class Kind(ABC):
    """Clients of one library."""

    def prepare(self, place: Place) -> Kind:
        """Compiles what has to be compiled."""
        return self

    @abstractmethod
    def writer(self, place: Place, topic: str, keys: int) -> Writer: ...

    @abstractmethod
    def reader(self, place: Place, number: int) -> Reader: ...


# --- programs of any language ---------------------------------------------------------------------


class Program:
    """Runs a command, until the client is told to stop, and has what it prints heard."""

    def __init__(self, client: Client, command: Sequence[str], log: Path) -> None:
        self._client = client
        self._command = [*command]
        self._log = log

    def run(self) -> None:
        with (
            self._log.open("wb") as said,
            subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said
            ) as running,
        ):
            ends = threading.Thread(target=self._tell_to_stop, args=(running,), daemon=True)
            ends.start()
            assert running.stdout is not None
            for line in running.stdout:
                self._hear(json.loads(line))
            by_itself = not self._client.stop.is_set()
        if running.returncode != 0 or by_itself:
            self._client.failed.append(f"ended by itself with {running.returncode}: {self._log}")

    def _tell_to_stop(self, running: subprocess.Popen[bytes]) -> None:
        self._client.stop.wait()
        assert running.stdin is not None
        running.stdin.close()
        try:
            running.wait(2 * GOES_ON_S_MAX - STOPPED_BEFORE_S)
        except subprocess.TimeoutExpired:
            running.kill()

    def _hear(self, event: dict[str, Any]) -> None:
        client = self._client
        if "failed" in event:
            client.failed.append(str(event["failed"]))
        elif "acked" in event and isinstance(client, Writer):
            partition, offset, number, key = event["acked"]
            name = None if key is None else str(key).encode()
            client.acked[partition].append(Record(offset, name, b"%d:" % number))
            client.done()
        elif "read" in event and isinstance(client, Reader):
            partition, offset = event["read"]
            client.seen[partition].add(offset)
            client.done()
        elif "refused" in event and isinstance(client, Reader):
            client.refused.append(str(event["refused"]))
        elif "left" in event and isinstance(client, Writer):
            client.left = event["left"]
        else:
            client.failed.append(f"printed {event}")


class PrintingWriter(Writer):
    """`command`, with the rest of what its program has to be told."""

    def __init__(self, place: Place, topic: str, keys: int, command: Sequence[str]) -> None:
        super().__init__(place, topic, keys)
        self._program = Program(self, command, place.work / f"producer-{topic}.log")

    def _work(self) -> None:
        self._program.run()


class PrintingReader(Reader):
    """`command`, with the rest of what its program has to be told."""

    def __init__(self, place: Place, number: int, command: Sequence[str]) -> None:
        super().__init__(place, number)
        self._program = Program(self, command, place.work / f"consumer-{number}.log")

    def _work(self) -> None:
        self._program.run()
