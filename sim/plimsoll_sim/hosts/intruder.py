"""A process outside the cluster that calls brokers and controllers as if it were a broker.

Its credentials are none, an older Secret of a broker, the present Secret of another broker, or keys
of an authority of its own. It judges each answer by the metadata that the asked process had applied
at the time: credentials that this metadata does not allow must get no answer.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, cast
from uuid import UUID

from plimsoll_core.cluster.model import AnnouncedEndpoint, Broker, ClusterImage, Partition
from plimsoll_core.cluster.record_versions import UNDERSTOOD
from plimsoll_core.ids import BrokerEpoch, BrokerId, ControllerEpoch, MetadataOffset
from plimsoll_core.messages.brokers import BrokerFigures, InsideFigures
from plimsoll_core.messages.metadata_stream import FetchMetadata
from plimsoll_core.messages.requests import (
    CreateTopics,
    Heartbeat,
    LogPosition,
    NewTopic,
    Refused,
    RegisterBroker,
)
from plimsoll_core.release import RELEASE
from plimsoll_core.security.inside import InsideMode, broker_identity, controller_name
from plimsoll_net.dialling import Dialler, PeerAddress, Refusals
from plimsoll_net.inside_identity import AUTHORITIES, CERTIFICATE, KEY, fingerprints, identity_of
from plimsoll_sim.environment import certificates
from plimsoll_sim.hosts.brokers import CONTROLLER_PORT, REPLICATION_PORT
from plimsoll_sim.hosts.client_calls import ClientConnection, Lost
from plimsoll_sim.oracle.partition_ghost import Violation
from plimsoll_wire import control
from plimsoll_wire.replication import (
    NEW_SESSION,
    FetchLimits,
    FetchSender,
    MalformedReply,
    PartitionFetch,
    decode_fetch,
    encode_fetch,
)

ANSWER_S = 10.0
FOREIGN = UUID(int=0xBAD)
REQUESTS = ("heartbeat", "register", "metadata", "forward")
"""Requests that an intruder sends to a controller."""


class Loot(NamedTuple):
    """Certificate files (PEM) that an intruder presents, and the broker to which they belong.
    `files` None: it presents no certificate."""

    name: str
    files: dict[str, bytes] | None = None
    broker_id: int = -1
    sha256: str = ""


NOTHING = Loot("no certificate")


def stolen(name: str, broker_id: int, files: dict[str, bytes]) -> Loot:
    """Return the files of a broker's Secret as an intruder's loot."""
    return Loot(name, files, broker_id, fingerprints(files[CERTIFICATE])[0])


def forged(cluster_id: UUID, broker_id: int, trusted: bytes) -> Loot:
    """Return a certificate for this broker, signed by the intruder's own authority."""
    authority = certificates.new_authority("intruder", 0)
    identity = broker_identity(cluster_id, broker_id)
    pair = certificates.issue_inside(authority, identity, 0)
    files = {CERTIFICATE: pair.certificate, KEY: pair.key, AUTHORITIES: trusted}
    return stolen("a certificate of another authority", broker_id, files)


def is_allowed(image: ClusterImage, loot: Loot, broker_id: int) -> bool:
    """Return True if the committed metadata allows this broker to present these credentials."""
    inside = image.inside
    if loot.files is None or inside.mode is InsideMode.OFF:
        return inside.mode is not InsideMode.REQUIRED
    return loot.broker_id == broker_id and loot.sha256 in inside.of(BrokerId(broker_id))


@dataclass(frozen=True, slots=True, kw_only=True)
class IntrudedHost:
    """The host to which an intruder connects. `image`: returns the metadata applied there, None if
    it does not serve."""

    host: str
    image: Callable[[], ClusterImage | None]


class Intruder:
    """An intruder. `claims`: the id of the broker that it claims to be."""

    def __init__(self, cluster_id: UUID, loot: Loot, claims: Broker) -> None:
        self._cluster_id = cluster_id
        self._loot = loot
        self._claims = claims

    # --- what it asks -----------------------------------------------------------------------------

    async def fetch(self, target: IntrudedHost, p: Partition, offset: int) -> str:
        """Send a Fetch as a follower that has everything below `offset`. Return the outcome as
        text."""
        sender = FetchSender(int(self._claims.id), int(self._claims.broker_epoch), 0)
        frame = posed_fetch(p, sender, offset)
        reply, image = await self._ask(target, REPLICATION_PORT, "", frame)
        if reply is None:
            return "no answer"
        try:
            refused = refusal_of(reply)
        except MalformedReply:
            return "refused"
        return "refused" if refused else self._answered("NoForeignFollower", target, image)

    async def command(self, target: IntrudedHost, what: str, rng: random.Random) -> str:
        """Send one of `REQUESTS` to a controller. Return the outcome as text."""
        name = controller_name(self._cluster_id)
        frame = control.encode_request(1, "intruder", self._body(what, rng))
        reply, image = await self._ask(target, CONTROLLER_PORT, name, frame)
        if reply is None:
            return "no answer"
        if what == "metadata":
            refused = control.decode_metadata_reply(reply).update is None
        else:
            refused = isinstance(control.decode_command_reply(reply).answer, Refused)
        return "refused" if refused else self._answered("OneKeyOneBroker", target, image)

    def _body(self, what: str, rng: random.Random) -> Any:
        broker, cluster_id = self._claims, self._cluster_id
        position = LogPosition(
            applied_offset=MetadataOffset(0), nonce=None, controller_epoch=ControllerEpoch(0)
        )
        if what == "metadata":
            return FetchMetadata(
                cluster_id=cluster_id, broker_id=broker.id, offset=MetadataOffset(0)
            )
        request: Any
        if what == "heartbeat":
            told = InsideFigures(sha256=self._loot.sha256, only_tls=True)
            request = Heartbeat(
                broker_id=broker.id, broker_epoch=broker.broker_epoch, position=position,
                want_shutdown=rng.random() < 0.5, figures=BrokerFigures(inside=told),
                metadata_versions=UNDERSTOOD, release=RELEASE,
            )  # fmt: skip
        elif what == "register":
            request = RegisterBroker(
                cluster_id=cluster_id, broker_id=broker.id, incarnation_id=FOREIGN,
                previous_broker_epoch=BrokerEpoch(broker.broker_epoch),
                directory_ids=broker.directory_ids, metadata_versions=UNDERSTOOD, release=RELEASE,
                endpoints=(AnnouncedEndpoint(name="clients", host="intruder", port=9092),),
            )  # fmt: skip
        else:
            topic = NewTopic(name="intruders", partitions=1, replication_factor=1)
            request = CreateTopics(topics=(topic,))  # as of the broker itself
        return control.Command(
            cluster_id=cluster_id, controller_epoch=ControllerEpoch(0), request=request
        )

    async def linger(self, target: IntrudedHost) -> str:
        """Connect as a follower, send nothing, and wait for the end of the connection. Return the
        outcome as text."""
        try:
            connection = await self._dial(PeerAddress(target.host, REPLICATION_PORT), "")
        except (OSError, Lost):
            return "no answer"
        await connection.lost.wait()
        return "closed"

    # --- how it asks ------------------------------------------------------------------------------

    async def _ask(
        self, target: IntrudedHost, port: int, name: str, frame: bytes
    ) -> tuple[bytes | None, ClusterImage | None]:
        """Send a frame. Return the answer (None if there is none), and the metadata that the other
        end had applied when the frame was sent."""
        image: ClusterImage | None = None
        connection: ClientConnection | None = None
        try:
            async with asyncio.timeout(ANSWER_S):
                connection = await self._dial(PeerAddress(target.host, port), name)
                image = target.image()
                future = connection.send(frame)
                assert future is not None, "it waits for the answer"
                return await future, image
        except (OSError, TimeoutError, Lost):
            return None, image
        finally:
            if connection is not None:
                connection.close()

    async def _dial(self, address: PeerAddress, name: str) -> ClientConnection:
        files = self._loot.files
        if files is None:
            loop = asyncio.get_running_loop()
            _, plain = await loop.create_connection(ClientConnection, *address)
            return plain
        identity = identity_of(files[CERTIFICATE], files[KEY], files[AUTHORITIES])
        dialler = Dialler(lambda: identity, lambda: True, Refusals())
        made, _ = await dialler.dial(
            cast("Callable[[], asyncio.BaseProtocol]", ClientConnection), address, name, _anybody
        )
        return cast("ClientConnection", made)

    def _answered(self, predicate: str, target: IntrudedHost, image: ClusterImage | None) -> str:
        broker_id = int(self._claims.id)
        if image is not None and not is_allowed(image, self._loot, broker_id):
            text = (
                f"{target.host} answers as to broker {broker_id} any process with {self._loot.name}"
            )
            raise Violation(predicate, text)
        return "answered"


def _anybody(_: object) -> str:
    """Return "": accept any server."""
    return ""


LIMITS = FetchLimits(0, 2**20, 2**20)


def posed_fetch(p: Partition, sender: FetchSender, offset: int) -> bytes:
    """Return the frame of a Fetch that claims everything below `offset`, in the partition's present
    leader epoch."""
    asked = PartitionFetch(p.index, p.leader_epoch, offset, p.leader_epoch, 0)
    return encode_fetch(1, sender, LIMITS, [(p.topic_id.bytes, [asked])], NEW_SESSION)


def refusal_of(reply: bytes) -> int:
    """Return the first error code in the answer to a Fetch; 0 if it has none. Raises
    MalformedReply."""
    found = decode_fetch(memoryview(reply), 1)
    codes = (found.code, *(one.code for one in found.partitions))
    return next((int(code) for code in codes if code), 0)
