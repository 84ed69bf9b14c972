"""What an ordinary pod of the next namespace tries against a secured cluster; runs inside that pod.

Nothing but the standard library: the test hands the text to `python3 -`.  Its argument is JSON of
what an attacker knows; it prints JSON, what came of each attempt.
"""

from __future__ import annotations

import json
import os
import socket
import ssl
import struct
import sys
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

API_KEYS = (*range(17), *range(19, 36), *range(37, 69), 1000, 1001)
"""All of Kafka's but those of a login (17, 18, 36), and those of the controllers' port."""
PATIENCE_S = 8
UNREACHABLE = "unreachable"
ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"


def framed(key: int, version: int, body: bytes) -> bytes:
    head = struct.pack(">hhih", key, version, 7, 4) + b"evil"
    return struct.pack(">i", len(head) + len(body)) + head + body


def received(peer: socket.socket) -> bytes:
    """A whole reply, or what there was of it when the peer closed."""
    found, size = b"", 4
    while len(found) < size:
        try:
            more = peer.recv(65536)
        except ConnectionResetError:
            more = b""
        if not more:
            return b""
        found += more
        if len(found) >= 4:
            size = 4 + struct.unpack_from(">i", found)[0]
    return found[4:]


class Listener:
    """A connection to the listener that asks for logins."""

    def __init__(self, known: dict[str, Any]) -> None:
        plain = socket.create_connection((known["broker"], known["port"]), PATIENCE_S)
        context = ssl.create_default_context(cadata=known["authority"])
        self._peer = context.wrap_socket(plain, server_hostname=known["host"])

    def ask(self, key: int, version: int, body: bytes) -> bytes:
        self._peer.sendall(framed(key, version, body))
        return received(self._peer)

    def log_in(self, token: str) -> bool:
        mechanism = b"OAUTHBEARER"
        self.ask(17, 1, struct.pack(">h", len(mechanism)) + mechanism)
        said = b"n,,\x01auth=Bearer " + token.encode() + b"\x01\x01"
        # Code, message and the server's own, which is empty when it lets in.
        return self.ask(36, 1, struct.pack(">i", len(said)) + said)[4:].startswith(
            b"\0\0\xff\xff\0\0\0\0"
        )

    def close(self) -> None:
        self._peer.close()


def before_a_login(known: dict[str, Any]) -> str:
    answered = []
    for key in API_KEYS:
        listener = Listener(known)
        if listener.ask(key, 1, bytes(40)):
            answered.append(key)
        listener.close()
    return f"answered: {answered}"


def by_token(known: dict[str, Any], file: str) -> str:
    """What a pod of another namespace may do with what the kubelet gives it."""
    listener = Listener(known)
    with open(f"/login/{file}", encoding="ascii") as token:
        if not listener.log_in(token.read().strip()):
            return "not let in"
    name = struct.pack(">h", len(known["topic"])) + known["topic"].encode()
    one = struct.pack(">i", 1) + name + struct.pack(">i", 1)
    produce = struct.pack(">hhi", -1, -1, 1000) + one + struct.pack(">ii", 0, 0)
    fetch = struct.pack(">iiiib", -1, 0, 0, 1024, 0) + one + struct.pack(">iqi", 0, 0, 1024)
    at = 8 + len(name) + 8
    written = struct.unpack_from(">h", listener.ask(0, 3, produce), at)[0]
    read = struct.unpack_from(">h", listener.ask(1, 4, fetch), at + 4)[0]
    seen = name in listener.ask(3, 1, struct.pack(">i", -1))
    listener.close()
    return f"let in; write {written}, read {read}, sees the topic {seen}"


def inside_in_plaintext(known: dict[str, Any]) -> str:
    """As a follower, at the replication port: the only one tried here that a NetworkPolicy of the
    cluster closes to this pod."""
    try:
        peer = socket.create_connection((known["broker"], 9091), PATIENCE_S)
    except OSError:  # a network plugin drops, or refuses
        return UNREACHABLE
    with peer:
        peer.sendall(framed(2, 1, struct.pack(">ii", 1, 0)))
        return "answered" if received(peer) else "closed"


def over_http(url: str, headers: dict[str, str], context: ssl.SSLContext | None = None) -> str:
    request = urllib.request.Request(url, headers=headers)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S, context=context) as answer:
            return str(answer.status)
    except urllib.error.HTTPError as error:
        return str(error.code)


def kubernetes(path: str) -> str:
    """By the pod's own account."""
    with open(f"{ACCOUNT}/token", encoding="ascii") as token:
        headers = {"Authorization": f"Bearer {token.read()}"}
    host, port = os.environ["KUBERNETES_SERVICE_HOST"], os.environ["KUBERNETES_SERVICE_PORT"]
    context = ssl.create_default_context(cafile=f"{ACCOUNT}/ca.crt")
    return over_http(f"https://{host}:{port}{path}", headers, context)


def view(known: dict[str, Any], file: str | None) -> str:
    headers = {}
    if file is not None:
        with open(f"/login/{file}", encoding="ascii") as token:
            headers["Authorization"] = f"Bearer {token.read().strip()}"
    path = f"/v1/clusters/{known['namespace']}/main"
    return ", ".join(
        sorted({over_http(f"http://{one}:9100{path}", headers) for one in known["operators"]})
    )


def attempts(known: dict[str, Any]) -> dict[str, Callable[[], str]]:
    of = f"/api/v1/namespaces/{known['namespace']}"
    crds = f"/apis/plimsoll.dev/v1alpha1/namespaces/{known['namespace']}"
    return {
        "requests before a login": lambda: before_a_login(known),
        "a token for this cluster": lambda: by_token(known, "here"),
        "a token for another cluster": lambda: by_token(known, "elsewhere"),
        "a token for the view": lambda: by_token(known, "view"),
        "the replication port in plaintext": lambda: inside_in_plaintext(known),
        "Secrets": lambda: kubernetes(f"{of}/secrets"),
        "a broker's Secret": lambda: kubernetes(f"{of}/secrets/main-broker-0-tls"),
        "Users": lambda: kubernetes(f"{crds}/users"),
        "the metadata log": lambda: kubernetes(f"{crds}/metadatabatches"),
        "the view without a token": lambda: view(known, None),
        "the view with a token for it": lambda: view(known, "view"),
        "the view with a token for the cluster": lambda: view(known, "here"),
    }


def main() -> None:
    known = json.loads(sys.argv[1])
    print(json.dumps({name: attempt() for name, attempt in attempts(known).items()}))


if __name__ == "__main__":
    main()
