"""A connection to one broker for fetches of whole batches: from the leader, as a consumer gets
them, or from the broker's own replica.

librdkafka has no call for either. Called by `replica_reader`; one request at a time. It takes the
settings of librdkafka for TLS and SASL (PLAIN, SCRAM). It checks nothing that it receives but its
form. Sources: Kafka's Fetch v12, Metadata v7, ApiVersions v3, SaslHandshake v1 and SaslAuthenticate
v0; RFC 5802.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import socket
import ssl
import struct
import time
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple, TypeVar

from plimsoll_spark.batches import AbortedTransaction

FETCH, METADATA, SASL_HANDSHAKE, API_VERSIONS, SASL_AUTHENTICATE = 1, 3, 17, 18, 36
CLIENT_ID = b"plimsoll-audit"
CONSUMER, OWN_COPY = -1, -2
"""The replica ids of a consumer, and of one that reads the asked broker's own replica (Kafka's
debugging consumer)."""
SUPPORTED_FEATURES, SHARE_GROUP_HEARTBEAT = 0, 76
"""A tag of ApiVersions, and an API. Apache Kafka has this API only with KRaft, and then it always
states supported features, as Plimsoll does from 0.3 on."""
REPLY_BYTES_MAX = 128 * 2**20
WAIT_MS = 500
SCRAM = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
ROUNDS_MIN, ROUNDS_MAX = 4_096, 1_000_000
"""Bounds on the iterations of SCRAM. With fewer (RFC 7677), the proof would give a false broker a
password that is easy to guess; more would keep the processor busy for as long as it likes."""


Answer = TypeVar("Answer")


class ConnectionLost(Exception):
    """The broker cannot be reached, closed the connection, did not answer in time, or sent a
    malformed reply."""


class Leader(NamedTuple):
    """The broker that leads a partition: its id, host and port."""

    broker: int
    host: str
    port: int


class LoginRefused(Exception):
    """The broker does not accept the credentials, or the settings are not supported."""


class Fetched(NamedTuple):
    """The answer to a fetch of one partition. `code`: Kafka's error code, 0 for none; offsets are
    -1 if unknown; `records`: the bytes of the batches, empty if the answer has none;
    `is_held_back`: True if a quota left the whole answer empty, so it says nothing; `aborted`: the
    aborted transactions with records in the answer, none unless committed records were asked
    for."""

    code: int
    high_watermark: int
    log_start_offset: int
    records: memoryview
    is_held_back: bool = False
    aborted: tuple[AbortedTransaction, ...] = ()


class Standing(NamedTuple):
    """What a broker's metadata say of a partition. `in_sync`: ids of the brokers in the ISR;
    `leader`: None if there is none."""

    leader_epoch: int
    in_sync: frozenset[int]
    leader: Leader | None = None


class BrokerConnection:
    """One connection to a broker, with one request at a time. After an error it must be closed and
    not used any more."""

    def __init__(self, host: str, port: int, login: Mapping[str, str], timeout_s: float) -> None:
        """Connect and log in. `login`: settings of librdkafka; `timeout_s`: bound on connecting and
        on each read and write. Raises `ConnectionLost` and `LoginRefused`."""
        self._correlation = 0
        self._not_before_s = 0.0
        self._reads_own_copy: bool | None = None
        self._buffer = bytearray()
        try:
            plain = socket.create_connection((host, port), timeout_s)
            plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._socket = _secured(plain, host, login)
        except OSError as error:
            raise ConnectionLost(f"{host}:{port}: {error}") from error
        try:
            self._log_in(login)
        except (ConnectionLost, LoginRefused):
            self.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    # --- fetching -------------------------------------------------------------------------------

    def ask(
        self,
        topic: str,
        partition: int,
        offset: int,
        max_bytes: int,
        *,
        own_copy: bool,
        committed: bool = False,
    ) -> None:
        """Send a fetch of one partition from `offset` on; first sleep for the time that the last
        answer's quota demands. `max_bytes`: bound on the answer, which has at least one whole
        batch; `own_copy`: True to read the broker's own replica, False to read from the leader as a
        consumer; `committed`: True to read up to the last stable offset only, and to be told of
        aborted transactions. `answer` must be called before the next `ask`. Raises
        `ConnectionLost`."""
        if (wait_s := self._not_before_s - time.monotonic()) > 0:
            time.sleep(wait_s)  # the broker said how long: a quota
        name = topic.encode()
        replica = OWN_COPY if own_copy else CONSUMER
        body = struct.pack(">iiiibii", replica, WAIT_MS, 1, max_bytes, committed, 0, -1)
        body += b"\x02" + _compact(name) + b"\x02"
        body += struct.pack(">iiqiqi", partition, -1, offset, -1, -1, max_bytes)
        self._send(FETCH, 12, body + b"\0\0" + b"\x01" + b"\x01" + b"\0", flexible=True)

    def answer(self) -> Fetched:
        """Return the answer to the fetch that was sent. Its `records` become invalid with the next
        call. Raises `ConnectionLost`."""
        return self._parsed(self._fetched)

    def _fetched(self, reply: memoryview) -> Fetched:
        at = _skip_tags(reply, 4)
        throttle_ms, code, _ = struct.unpack_from(">ihi", reply, at)
        self._not_before_s = time.monotonic() + throttle_ms / 1000
        topics, at = _uvarint_at(reply, at + 10)
        if topics < 2:  # the whole request is refused, or a quota leaves the reply empty
            return Fetched(code, -1, -1, reply[:0], is_held_back=code == 0)
        length, at = _uvarint_at(reply, at)
        _, at = _uvarint_at(reply, at + length - 1)
        _, code, high, _, start = struct.unpack_from(">ihqqq", reply, at)
        count, at = _uvarint_at(reply, at + 30)
        aborted: list[AbortedTransaction] = []
        for _ in range(count - 1):
            aborted.append(AbortedTransaction(*struct.unpack_from(">qq", reply, at)))
            at = _skip_tags(reply, at + 16)
        size, at = _uvarint_at(reply, at + 4)
        records = reply[at : at + max(0, size - 1)]
        return Fetched(code, high, start, records, aborted=tuple(aborted))

    # --- asking about the broker and the cluster ------------------------------------------------

    @property
    def reads_own_copy(self) -> bool:
        """False if the broker is one of Plimsoll 0.2, which takes a reader of its own replica for a
        consumer and answers from memory. It is asked once. Raises `ConnectionLost`."""
        if self._reads_own_copy is None:
            body = _compact(CLIENT_ID) + _compact(b"1") + b"\0"
            self._send(API_VERSIONS, 3, body, flexible=True)
            keys, features = self._parsed(_apis)
            self._reads_own_copy = bool(features) or SHARE_GROUP_HEARTBEAT not in keys
        return self._reads_own_copy

    def standing(self, topic: str, partition: int) -> Standing | None:
        """Return what the broker's metadata say of the partition, None if they do not show it.
        Raises `ConnectionLost`."""
        name = topic.encode()
        body = struct.pack(">ih", 1, len(name)) + name + b"\0"
        self._send(METADATA, 7, body, flexible=False)
        return self._parsed(lambda reply: dict(_standings(reply)).get(partition))

    def _parsed(self, parse: Callable[[memoryview], Answer]) -> Answer:
        reply = self._receive()
        try:
            return parse(reply)
        except (struct.error, IndexError, UnicodeDecodeError) as error:
            raise ConnectionLost(f"a reply of the broker cannot be read: {error}") from error

    # --- logging in -----------------------------------------------------------------------------

    def _log_in(self, login: Mapping[str, str]) -> None:
        if not login.get("security.protocol", "").lower().startswith("sasl"):
            return
        mechanism = login.get("sasl.mechanism") or login.get("sasl.mechanisms") or ""
        user, password = login.get("sasl.username", ""), login.get("sasl.password", "")
        if mechanism != "PLAIN" and mechanism not in SCRAM:
            raise LoginRefused(f"SASL mechanism {mechanism} is not supported; use PLAIN or SCRAM")
        name = mechanism.encode()
        self._send(SASL_HANDSHAKE, 1, struct.pack(">h", len(name)) + name, flexible=False)
        (code,) = struct.unpack_from(">h", self._receive(), 4)
        if code:
            raise LoginRefused(
                f"the broker's listener does not accept SASL mechanism {mechanism}; set "
                "sasl.mechanism to one that it accepts"
            )
        if mechanism == "PLAIN":
            self._token(b"\0" + user.encode() + b"\0" + password.encode())
            return
        scram = Scram(SCRAM[mechanism], user, password)
        proof = scram.proof(self._token(scram.first))
        if not scram.is_server(self._token(proof)):
            raise LoginRefused(
                f"the SCRAM login of {user} was stopped, because the broker did not prove that "
                "it knows the password; check that the address is that of a broker of the cluster"
            )

    def _token(self, token: bytes) -> bytes:
        body = struct.pack(">i", len(token)) + token
        self._send(SASL_AUTHENTICATE, 0, body, flexible=False)
        reply = self._receive()
        code, length = struct.unpack_from(">hh", reply, 4)
        said = bytes(reply[8 : 8 + max(0, length)]).decode(errors="replace")
        if code:
            raise LoginRefused(f"the broker refused the login: {said or f'error {code}'}")
        at = 8 + max(0, length)
        (size,) = struct.unpack_from(">i", reply, at)
        return bytes(reply[at + 4 : at + 4 + max(0, size)])

    # --- frames ---------------------------------------------------------------------------------

    def _send(self, key: int, version: int, body: bytes, *, flexible: bool) -> None:
        self._correlation += 1
        head = struct.pack(">hhih", key, version, self._correlation, len(CLIENT_ID)) + CLIENT_ID
        frame = head + (b"\0" if flexible else b"") + body
        try:
            self._socket.sendall(struct.pack(">i", len(frame)) + frame)
        except OSError as error:
            raise ConnectionLost(str(error)) from error

    def _receive(self) -> memoryview:
        (size,) = struct.unpack(">i", self._bytes(4))
        if not 4 <= size <= REPLY_BYTES_MAX:
            raise ConnectionLost(
                f"the broker sent a reply of {size} bytes; 4 to {REPLY_BYTES_MAX} are valid"
            )
        reply = self._bytes(size)
        (correlation,) = struct.unpack_from(">i", reply)
        if correlation != self._correlation:
            raise ConnectionLost("the broker's reply belongs to another request")
        return reply

    def _bytes(self, size: int) -> memoryview:
        if len(self._buffer) < size:
            self._buffer = bytearray(size)
        whole = memoryview(self._buffer)[:size]
        got = 0
        try:
            while got < size:
                more = self._socket.recv_into(whole[got:])
                if not more:
                    raise ConnectionLost(
                        "the broker closed the connection of the Verification's driver pod"
                    )
                got += more
        except OSError as error:
            raise ConnectionLost(str(error)) from error
        return whole


class Scram:
    """One login by SCRAM, without channel binding."""

    def __init__(self, algorithm: str, user: str, password: str) -> None:
        self._algorithm = algorithm
        self._password = password.encode()
        self._nonce = base64.b64encode(os.urandom(18))
        name = user.replace("=", "=3D").replace(",", "=2C").encode()
        self._bare = b"n=" + name + b",r=" + self._nonce
        self._signature = b""

    @property
    def first(self) -> bytes:
        """The client's first message."""
        return b"n,," + self._bare

    def proof(self, challenge: bytes) -> bytes:
        """Return the client's final message for `challenge`, the broker's first one, and keep the
        signature that `is_server` expects. Raises `LoginRefused` if the challenge is malformed, has
        another nonce, or states iterations below `ROUNDS_MIN` or above `ROUNDS_MAX`."""
        try:
            fields = dict(part.split(b"=", 1) for part in challenge.split(b","))
            nonce, salt = fields[b"r"], base64.b64decode(fields[b"s"])
            rounds = int(fields[b"i"])
        except (KeyError, ValueError) as error:
            raise LoginRefused(
                "the broker refused the SCRAM login: it sent no challenge"
            ) from error
        if not nonce.startswith(self._nonce):
            raise LoginRefused(
                "the SCRAM login was stopped, because the nonce in the broker's answer does not "
                "begin with the client's nonce; check that the address is that of a broker"
            )
        if not ROUNDS_MIN <= rounds <= ROUNDS_MAX:
            raise LoginRefused(
                f"the broker asks for {rounds} iterations of SCRAM; {ROUNDS_MIN} to {ROUNDS_MAX}"
                " are accepted"
            )
        salted = hashlib.pbkdf2_hmac(self._algorithm, self._password, salt, rounds)
        key = self._keyed(salted, b"Client Key")
        final = b"c=biws,r=" + nonce
        message = b",".join((self._bare, challenge, final))
        signature = self._keyed(hashlib.new(self._algorithm, key).digest(), message)
        self._signature = self._keyed(self._keyed(salted, b"Server Key"), message)
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        return final + b",p=" + base64.b64encode(proof)

    def is_server(self, answer: bytes) -> bool:
        """Return True if `answer`, the broker's last message, proves that it knows the password. To
        be called after `proof`."""
        return hmac.compare_digest(answer, b"v=" + base64.b64encode(self._signature))

    def _keyed(self, key: bytes, message: bytes) -> bytes:
        return hmac.new(key, message, self._algorithm).digest()


def _secured(plain: socket.socket, host: str, login: Mapping[str, str]) -> socket.socket:
    if not login.get("security.protocol", "").lower().endswith("ssl"):
        return plain
    context = ssl.create_default_context(cafile=login.get("ssl.ca.location"))
    if login.get("ssl.endpoint.identification.algorithm") == "none":
        context.check_hostname = False
    if certificate := login.get("ssl.certificate.location"):
        key, secret = login.get("ssl.key.location"), login.get("ssl.key.password")
        context.load_cert_chain(certificate, key, secret)
    return context.wrap_socket(plain, server_hostname=host)


def _standings(reply: memoryview) -> Iterator[tuple[int, Standing]]:
    """Yield number and standing of each partition in an answer about one topic."""
    (brokers,) = struct.unpack_from(">i", reply, 8)
    at = 12
    known: dict[int, Leader] = {}
    for _ in range(brokers):
        (broker,) = struct.unpack_from(">i", reply, at)
        host, at = _text_at(reply, at + 4)
        known[broker] = Leader(broker, host, *struct.unpack_from(">i", reply, at))
        _, at = _text_at(reply, at + 4)  # the rack
    _, at = _text_at(reply, at)  # the cluster's id
    at += 4  # the controller's id
    topics, code = struct.unpack_from(">ih", reply, at)
    if topics != 1 or code:
        return
    _, at = _text_at(reply, at + 6)  # the name
    (partitions,) = struct.unpack_from(">i", reply, at + 1)
    at += 5
    for _ in range(partitions):
        _, partition, leader, epoch = struct.unpack_from(">hiii", reply, at)
        _, at = _ids_at(reply, at + 14)
        in_sync, at = _ids_at(reply, at)
        _, at = _ids_at(reply, at)
        yield partition, Standing(epoch, frozenset(in_sync), known.get(leader))


def _text_at(data: memoryview, at: int) -> tuple[str, int]:
    """Return a text with a length of two bytes, empty if it is null, and the place behind it."""
    (length,) = struct.unpack_from(">h", data, at)
    end = at + 2 + max(0, length)
    return bytes(data[at + 2 : end]).decode(), end


def _ids_at(data: memoryview, at: int) -> tuple[tuple[int, ...], int]:
    (count,) = struct.unpack_from(">i", data, at)
    return struct.unpack_from(f">{count}i", data, at + 4), at + 4 + 4 * count


def _apis(reply: memoryview) -> tuple[set[int], set[str]]:
    """Return the keys of the APIs, and the names of the supported features, in a reply of
    ApiVersions v3; none if the broker does not know this version."""
    (code,) = struct.unpack_from(">h", reply, 4)
    if code:
        return set(), set()
    keys, features = set(), set()
    count, at = _uvarint_at(reply, 6)
    for _ in range(count - 1):
        keys.add(struct.unpack_from(">h", reply, at)[0])
        at = _skip_tags(reply, at + 6)
    tags, at = _uvarint_at(reply, at + 4)
    for _ in range(tags):
        tag, at = _uvarint_at(reply, at)
        size, at = _uvarint_at(reply, at)
        end = at + size
        if tag == SUPPORTED_FEATURES:
            count, at = _uvarint_at(reply, at)
            for _ in range(count - 1):
                length, at = _uvarint_at(reply, at)
                features.add(bytes(reply[at : at + length - 1]).decode())
                at = _skip_tags(reply, at + length + 3)
        at = end
    return keys, features


def _compact(text: bytes) -> bytes:
    return _uvarint(len(text) + 1) + text


def _uvarint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _uvarint_at(data: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def _skip_tags(data: memoryview, at: int) -> int:
    count, at = _uvarint_at(data, at)
    for _ in range(count):
        _, at = _uvarint_at(data, at)
        size, at = _uvarint_at(data, at)
        at += size
    return at
