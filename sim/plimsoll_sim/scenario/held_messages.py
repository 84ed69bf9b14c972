"""Holds messages back in the network, by kind, sender and receiver, until a command releases them.

It reads every connection of the network, and recognises requests by their API key and replies by
their request. A leader's push counts as a Fetch-reply, and its acknowledgement as a Fetch: they say
the same. Later messages on the same connection wait behind a held one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from plimsoll_core.messages.metadata_stream import FetchMetadata
from plimsoll_sim.environment.connection_end import End
from plimsoll_sim.environment.network import Network
from plimsoll_sim.environment.simulated_tls import RECORDS, Records
from plimsoll_sim.hosts.brokers import CONTROLLER_PORT, KAFKA_PORT, REPLICATION_PORT
from plimsoll_sim.scenario import proposal_trace
from plimsoll_sim.scenario.proposal_trace import Named
from plimsoll_wire import control, tail_stream
from plimsoll_wire.api_versions import ApiKey
from plimsoll_wire.framing import Framer

FRAME_BYTES_MAX = 2**30
REPLY = "-reply"
Frame = bytes | bytearray | memoryview


class HeldMessage(NamedTuple):
    """Which messages to hold back. `kind`: a Kafka API's or a control request's name, with `-reply`
    for its answer."""

    kind: str
    source: str
    target: str


@dataclass(slots=True)
class _Side:
    """The messages that one side of a connection has sent. `asked`: its unanswered requests."""

    framer: Framer = field(default_factory=lambda: Framer(FRAME_BYTES_MAX))
    asked: dict[int, str] = field(default_factory=dict)
    # The state of its TLS records; None if it speaks none, or has sent nothing.
    records: Records | None = None
    spoken: bool = False

    def heard(self, data: bytes) -> None:
        """Read data that was sent. Simulated TLS is readable here."""
        if not self.spoken:
            self.spoken = True
            self.records = Records() if data[0] in RECORDS else None
        if self.records is not None:
            data = self.records.carried(data)
        self.framer.receive(data)


class Taps:
    """Reads all messages of a network and holds some back. The network calls `keeps` with
    everything that is sent."""

    def __init__(self, network: Network, named: Named) -> None:
        self._network = network
        self._named = named
        self.overheard: list[str] = []
        self._holds: dict[HeldMessage, dict[End, None]] = {}
        self._sides: dict[End, _Side] = {}
        self.kept = 0
        network.keeps = self.keeps

    def hold(self, hold: HeldMessage) -> None:
        self._holds[hold] = {}

    def release(self, holds: Iterable[HeldMessage]) -> None:
        """End these holds and deliver the messages that they held."""
        for end in self._let_go(holds):
            if end.held:
                self._network.release(end)

    def lose(self, holds: Iterable[HeldMessage]) -> None:
        """Break the connections on which these holds hold back messages, which then never
        arrive."""
        for end in self._let_go(holds):
            end.held.clear()
            end.process.call(end.abort)

    @property
    def holds(self) -> list[HeldMessage]:
        return list(self._holds)

    def _let_go(self, holds: Iterable[HeldMessage]) -> list[End]:
        ends: dict[End, None] = {}
        for hold in holds:
            ends |= self._holds.pop(hold, {})
        self.kept = sum(len(kept) for kept in self._holds.values())
        return list(ends)

    def keeps(self, end: End, what: Any) -> bool:
        """Return True if something that a side of a connection sends must be held back."""
        if not isinstance(what, bytes):
            return False
        source, target = end.process.host, end.peer.process.host
        kept = False
        for kind in self._kinds(end, what):
            holding = self._holds.get(HeldMessage(kind, source, target))
            if holding is not None:
                holding[end] = None
                self.kept += 1
                kept = True
        return kept

    def _kinds(self, end: End, data: bytes) -> list[str]:
        """Return the kinds of the messages that end in these bytes."""
        mine = self._sides.setdefault(end, _Side())
        theirs = self._sides.setdefault(end.peer, _Side())
        mine.heard(data)
        found: list[str] = []
        while (frame := mine.framer.next_frame()) is not None:
            port = end.peer.address[1]
            if port == REPLICATION_PORT and tail_stream.is_acknowledgement(frame):
                found.append("Fetch")
                continue
            if port in (KAFKA_PORT, REPLICATION_PORT, CONTROLLER_PORT):
                kind = _control(frame) if port == CONTROLLER_PORT else _kafka(frame)
                mine.asked[int.from_bytes(frame[4:8], "big")] = kind
            elif tail_stream.is_push(frame):
                found.append("Fetch" + REPLY)
                continue
            else:
                number = int.from_bytes(frame[:4], "big")
                kind = theirs.asked.pop(number, "Unasked") + REPLY
            found.append(kind)
            self._overhear(end, kind, bytes(frame))
        return found

    def _overhear(self, end: End, kind: str, frame: bytes) -> None:
        source, target = (one.process.host.removeprefix("broker-") for one in (end, end.peer))
        told: list[str] = []
        if kind == "AlterPartition":
            told = proposal_trace.proposals(source, frame, self._named)
        elif kind == "AlterPartition" + REPLY:
            told = proposal_trace.answers(target, frame, self._named)
        elif kind == "Fetch" + REPLY and target.isdecimal():
            told = proposal_trace.fetched(source, target, frame, self._named)
        for line in told:
            if line not in self.overheard[-1:]:
                self.overheard.append(line)


def _kafka(frame: Frame) -> str:
    key = int.from_bytes(frame[:2], "big")
    return "".join(part.capitalize() for part in ApiKey(key).name.split("_"))


def _control(frame: Frame) -> str:
    body = control.decode_request(frame).body
    if isinstance(body, FetchMetadata):
        return "Metadata"
    return type(body.request if isinstance(body, control.Command) else body).__name__
