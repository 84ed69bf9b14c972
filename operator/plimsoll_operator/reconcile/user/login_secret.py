"""A user's own Secret: its content, and what the metadata log keeps of it. Pure but for the random
bytes of a new password and salt.

The Secret belongs to its User and is deleted with it. It contains complete client files, without
paths, so that a client needs nothing else.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Sequence
from typing import Any, NamedTuple

from plimsoll_core.addresses import split_address
from plimsoll_core.security.scram import (
    ITERATIONS_MIN,
    MECHANISMS,
    SPEC_NAMES,
    PreviousKeys,
    ScramCredential,
    ScramMechanism,
    keys_of,
    salt_of,
    salted_password,
)
from plimsoll_core.security.state import BY_CLIENT
from plimsoll_operator.api import API_VERSION
from plimsoll_operator.api.labels import MANAGED_BY, OPERATOR, USER_LOGIN
from plimsoll_operator.api.user import User
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.pki.authority import KeyPair
from plimsoll_operator.reconcile.user.bootstrap import Bootstrap

PASSWORD_KEY = "password"
PASSWORD_BYTES = 32
PASSWORD_CHARACTERS_MAX = 1024
NAMESAKE_LOOK_MS = 1_000
"""Delay while the Secret of a deleted User of the same name still exists, in milliseconds."""


def new_password() -> str:
    """Return a password of 256 random bits, in characters that no file format treats specially."""
    return secrets.token_urlsafe(PASSWORD_BYTES)


def mechanisms_of(user: User) -> tuple[ScramMechanism, ...]:
    """Return the mechanisms that the user may log in with, none without a password."""
    if user.scram is None:
        return ()
    wanted = user.scram.mechanisms
    return tuple(one for one in MECHANISMS if wanted is None or SPEC_NAMES[one] in wanted)


def password_in(secret: Object, key: str = PASSWORD_KEY) -> str | None:
    """Return the password in a Secret, or None if it holds no valid one."""
    text = _text(secret, key)
    return text if text is not None and 0 < len(text) <= PASSWORD_CHARACTERS_MAX else None


def _text(secret: Object, key: str) -> str | None:
    stored = (secret.get("data") or {}).get(key)
    if stored is None:
        return None
    try:
        return base64.b64decode(stored).decode().strip("\n")
    except ValueError:
        return None


def is_of(secret: Object, user: User) -> bool:
    """Return True if the Secret belongs to this very object."""
    owners = secret["metadata"].get("ownerReferences") or []
    return any(owner.get("uid") == user.metadata.uid for owner in owners)


def is_of_namesake(secret: Object, user: User) -> bool:
    """Return True if the Secret belongs to an earlier User of this name: the garbage collector
    deletes it soon."""
    owners = secret["metadata"].get("ownerReferences") or []
    mine = ("User", user.metadata.name)
    return any((owner.get("kind"), owner.get("name")) == mine for owner in owners)


class Owner(NamedTuple):
    """The User that an ownerReference names."""

    name: str
    uid: str


def left_by(secret: Object, user: User) -> Owner | None:
    """Return the other User that owns the Secret, if it holds the login of the user that `user`
    declares."""
    if secret.get("type") != USER_LOGIN or _text(secret, "username") != user.user_name:
        return None
    owners = secret["metadata"].get("ownerReferences") or []
    of_users = [one for one in owners if one.get("kind") == "User"]
    return Owner(of_users[0]["name"], of_users[0]["uid"]) if of_users else None


def login_secret(user: User, password: str | None, bootstrap: Bootstrap) -> Object:
    """Return the Secret. `password` is None if the user supplied its own in another Secret; it is
    not copied."""
    mechanisms, files = mechanisms_of(user), {}
    if password is not None and mechanisms:
        files = _files(user.user_name, password, mechanisms[-1], bootstrap)
    return _secret(user, bootstrap, files)


def certificate_secret(
    user: User, pair: KeyPair, former: Sequence[str], bootstrap: Bootstrap
) -> Object:
    """Return the Secret. `former`: fingerprints of earlier certificates that are still valid."""
    chain, key = pair.certificate.decode(), pair.key.decode()
    common = {"bootstrap.servers": ",".join(bootstrap.servers), "security.protocol": "SSL"}
    java = {
        **common,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": chain.strip(),
        "ssl.keystore.key": key.strip(),
        **_truststore(bootstrap),
    }
    files = {
        "tls.crt": chain,
        "tls.key": key,
        "java.properties": _properties(java),
        "librdkafka.conf": _lines(common),
        **_binding(user.user_name, common, bootstrap),
    }
    if former:
        files["former-certificates"] = " ".join(former)
    return _secret(user, bootstrap, files)


def _secret(user: User, bootstrap: Bootstrap, more: dict[str, str]) -> Object:
    files = {"username": user.user_name, "bootstrap.servers": ",".join(bootstrap.servers), **more}
    if bootstrap.authority:
        files["ca.crt"] = bootstrap.authority
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "type": USER_LOGIN,
        "metadata": {
            "name": user.secret_name,
            "namespace": user.metadata.namespace,
            "labels": {MANAGED_BY: OPERATOR},
            "ownerReferences": [
                {
                    "apiVersion": API_VERSION,
                    "kind": "User",
                    "name": user.metadata.name,
                    "uid": user.metadata.uid,
                    "controller": True,
                }
            ],
        },
        "data": {name: base64.b64encode(text.encode()).decode() for name, text in files.items()},
    }


def _files(
    user_name: str, password: str, mechanism: ScramMechanism, bootstrap: Bootstrap
) -> dict[str, str]:
    common = {
        "bootstrap.servers": ",".join(bootstrap.servers),
        "security.protocol": "SASL_SSL" if bootstrap.tls else "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
    }
    jaas = (
        "org.apache.kafka.common.security.scram.ScramLoginModule required"
        f' username="{user_name}" password="{_quoted(password)}";'
    )
    java = {**common, "sasl.jaas.config": jaas, **_truststore(bootstrap)}
    librdkafka = {**common, "sasl.username": user_name, "sasl.password": password}
    return {
        PASSWORD_KEY: password,
        "sasl.jaas.config": jaas,
        "java.properties": _properties(java),
        "librdkafka.conf": _lines(librdkafka),
        **_binding(user_name, common, bootstrap),
    }


def _truststore(bootstrap: Bootstrap) -> dict[str, str]:
    if not bootstrap.authority:
        return {}
    pem = bootstrap.authority.strip()
    return {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": pem}


def _quoted(text: str) -> str:
    """Escape text for the quotes of a JAAS line: users may choose their passwords."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _binding(user_name: str, common: dict[str, str], bootstrap: Bootstrap) -> dict[str, str]:
    """Return the keys that frameworks read in a mounted Secret: those of the Service Binding
    specification, and of its Kafka bindings in Quarkus (`bootstrapServers`, …) and Spring."""
    first = bootstrap.servers[0] if bootstrap.servers else ""
    host, port = split_address(first) if first else ("", None)
    servers = common["bootstrap.servers"]
    return {
        "type": "kafka",
        "provider": "plimsoll",
        "host": host,
        "port": "" if port is None else str(port),
        "user": user_name,
        "bootstrapServers": servers,
        "bootstrap-servers": servers,
        "security.protocol": common["security.protocol"],
        "securityProtocol": common["security.protocol"],
        **_mechanism(common.get("sasl.mechanism")),
    }


def _mechanism(name: str | None) -> dict[str, str]:
    return {} if name is None else {"sasl.mechanism": name, "saslMechanism": name}


def _lines(values: dict[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in values.items() if value)


def _properties(values: dict[str, str]) -> str:
    """Return a file for `java.util.Properties`, which reads ISO 8859-1."""
    return _lines({name: _escaped(value) for name, value in values.items()})


def _escaped(value: str) -> str:
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    if text.startswith((" ", "\t", "\f")):
        text = "\\" + text
    units = memoryview(text.encode("utf-16-be")).cast("B")
    codes = (units[at] << 8 | units[at + 1] for at in range(0, len(units), 2))
    return "".join(chr(code) if code < 0x7F else f"\\u{code:04x}" for code in codes)


def kept(
    user: User, password: str, known: dict[Any, ScramCredential], now_ms: int, left_ms: int
) -> tuple[ScramCredential, ...]:
    """Return the credentials to commit for the password, one per mechanism; keep a committed one
    that matches it.

    `left_ms`: how long another password at least stays valid if the object did not set it but took
    it over with the user.
    """
    found = []
    for mechanism in mechanisms_of(user):
        one = known.get(mechanism)
        inherited = one is not None and one.owner not in (BY_CLIENT, user.metadata.uid)
        overlap_s = (user.scram.overlap_seconds if user.scram is not None else None) or 0
        overlap_ms = max(1000 * overlap_s, left_ms if inherited else 0)
        until_ms = now_ms + overlap_ms if overlap_ms else None
        found.append(_kept(user, password, mechanism, one, until_ms))
    return tuple(found)


def _kept(
    user: User,
    password: str,
    mechanism: ScramMechanism,
    known: ScramCredential | None,
    until_ms: int | None,
) -> ScramCredential:
    """Return the credential. A new password keeps the previous salt, so that one challenge fits
    both during their overlap."""
    salt = salt_of(secrets.token_bytes(32)) if known is None else known.salt
    iterations = ITERATIONS_MIN if known is None else known.iterations
    salted = salted_password(mechanism, password, salt, iterations)
    stored_key, server_key = keys_of(mechanism, salted)
    if known is not None and (stored_key, server_key) == (known.stored_key, known.server_key):
        return known
    previous = None
    if known is not None and until_ms is not None:
        previous = PreviousKeys(
            stored_key=known.stored_key,
            server_key=known.server_key,
            until_ms=until_ms,
        )
    return ScramCredential(
        user=user.user_name,
        mechanism=mechanism,
        salt=salt,
        iterations=iterations,
        stored_key=stored_key,
        server_key=server_key,
        previous=previous,
    )
