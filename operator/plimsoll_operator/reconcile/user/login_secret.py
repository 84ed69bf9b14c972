"""Makes the content of a User's Secret, and the credentials and certificates to commit to the
metadata log for it. Pure but for the random bytes of a new password, salt and key.

The Secret belongs to its User and is deleted with it. It contains complete client files, without
paths, so that a client needs nothing else.

A certificate that is due is replaced, and the former one stays valid until it expires. If the
Secret holds no certificate of this user, only the new one is valid: users delete a Secret if they
no longer trust its key. So the Secret alone determines what is committed, and the next leader
commits the same.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Sequence
from typing import Any, NamedTuple
from uuid import UUID

from plimsoll_core.addresses import split_address
from plimsoll_core.security.client_certificates import (
    CERTIFICATES_MAX,
    UserCertificate,
    user_identity,
)
from plimsoll_core.security.scram import (
    ITERATIONS_MIN,
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
from plimsoll_operator.manifests.listener_secrets import data_of
from plimsoll_operator.pki.authority import (
    CLIENT_DAYS,
    KeyPair,
    Unreadable,
    describe,
    issue_client,
    signed_by,
    why_unusable,
)
from plimsoll_operator.reconcile.shared.client_bootstrap import Bootstrap, mechanisms_of
from plimsoll_operator.reconcile.user.proven_passwords import ProvenPasswords

PASSWORD_KEY = "password"
PASSWORD_BYTES = 32
PASSWORD_CHARACTERS_MAX = 1024
NAMESAKE_LOOK_MS = 1_000
"""Delay before the next look while the Secret of a deleted User of the same name still exists, in
milliseconds."""


CERTIFICATE_KEY, PRIVATE_KEY = "tls.crt", "tls.key"
FORMER_KEY = "former-certificates"
"""Key in a User's Secret with the fingerprints of former certificates, which are valid until they
expire."""


def new_password() -> str:
    """Return a password of 256 random bits, in characters that no file format treats specially."""
    return secrets.token_urlsafe(PASSWORD_BYTES)


def password_in(secret: Object, key: str = PASSWORD_KEY) -> str | None:
    """Return the password in a Secret, or None if it is missing, empty, too long or not UTF-8."""
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
    """Return True if this User object, identified by its uid, owns the Secret."""
    owners = secret["metadata"].get("ownerReferences") or []
    return any(owner.get("uid") == user.metadata.uid for owner in owners)


def is_of_namesake(secret: Object, user: User) -> bool:
    """Return True if a User object of this name owns the Secret. The owner may be an earlier object
    of that name; the garbage collector then deletes the Secret soon."""
    owners = secret["metadata"].get("ownerReferences") or []
    mine = ("User", user.metadata.name)
    return any((owner.get("kind"), owner.get("name")) == mine for owner in owners)


class Owner(NamedTuple):
    """The User object that owns a Secret, by its ownerReference."""

    name: str
    uid: str


def left_by(secret: Object, user: User) -> Owner | None:
    """Return the User that owns the Secret, if the Secret holds a login of the user name that
    `user` declares. Return None otherwise."""
    if secret.get("type") != USER_LOGIN or _text(secret, "username") != user.user_name:
        return None
    owners = secret["metadata"].get("ownerReferences") or []
    of_users = [one for one in owners if one.get("kind") == "User"]
    return Owner(of_users[0]["name"], of_users[0]["uid"]) if of_users else None


def login_secret(user: User, password: str | None, bootstrap: Bootstrap) -> Object:
    """Return the manifest of the Secret for a user with a password. `password` is None if the user
    stores it in a Secret of its own; it is not copied."""
    mechanisms, files = mechanisms_of(user), {}
    if password is not None and mechanisms:
        files = _files(user.user_name, password, mechanisms[-1], bootstrap)
    return _secret(user, bootstrap, files)


def certificate_secret(
    user: User, pair: KeyPair, former: Sequence[str], bootstrap: Bootstrap
) -> Object:
    """Return the manifest of the Secret for a user with a certificate. `former`: fingerprints of
    earlier certificates that are still valid."""
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
    """Return the text escaped for the quotes of a JAAS line, since users may choose their
    passwords."""
    return text.replace("\\", "\\\\").replace('"', '\\"')


def _binding(user_name: str, common: dict[str, str], bootstrap: Bootstrap) -> dict[str, str]:
    """Return the entries that frameworks read from a mounted Secret: those of the Service Binding
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
    """Return the content of a file for `java.util.Properties`, which reads ISO 8859-1."""
    return _lines({name: _escaped(value) for name, value in values.items()})


def _escaped(value: str) -> str:
    text = value.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    if text.startswith((" ", "\t", "\f")):
        text = "\\" + text
    units = memoryview(text.encode("utf-16-be")).cast("B")
    codes = (units[at] << 8 | units[at + 1] for at in range(0, len(units), 2))
    return "".join(chr(code) if code < 0x7F else f"\\u{code:04x}" for code in codes)


def kept(
    user: User,
    password: str,
    known: dict[Any, ScramCredential],
    proven: ProvenPasswords,
    now_ms: int,
    left_ms: int,
) -> tuple[ScramCredential, ...]:
    """Return the credentials to commit for `password`, one per SCRAM mechanism. A committed
    credential (`known`, by mechanism) that matches the password is returned unchanged; if `proven`
    has both, it is not derived again.

    If the password differs, the previous one stays valid for the overlap that the spec states. If
    another User set it and this one took the user over, it stays valid for at least `left_ms`.
    """
    found = []
    for mechanism in mechanisms_of(user):
        one = known.get(mechanism)
        if one is not None and proven.proven(user.key, one, password):
            found.append(one)
            continue
        inherited = one is not None and one.owner not in (BY_CLIENT, user.metadata.uid)
        overlap_s = (user.scram.overlap_seconds if user.scram is not None else None) or 0
        overlap_ms = max(1000 * overlap_s, left_ms if inherited else 0)
        until_ms = now_ms + overlap_ms if overlap_ms else None
        found.append(made := _kept(user, password, mechanism, one, until_ms))
        proven.prove(user.key, made, password)
    return tuple(found)


def _kept(
    user: User,
    password: str,
    mechanism: ScramMechanism,
    known: ScramCredential | None,
    until_ms: int | None,
) -> ScramCredential:
    """Return the credential of one mechanism. A new password keeps the previous salt, so that one
    challenge fits both during their overlap, which ends at `until_ms` (None: no overlap)."""
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


class UserPair(NamedTuple):
    """The certificate and key to store in a User's Secret, the fingerprints of former certificates
    to list there, and the certificates to commit, newest first."""

    pair: KeyPair
    former: tuple[str, ...]
    committed: tuple[UserCertificate, ...]


def settled(
    user: User,
    cluster_id: UUID,
    authority: KeyPair,
    found: Object | None,
    known: Sequence[UserCertificate],
    now_ms: int,
) -> UserPair:
    """Return the key pair to store and the certificates to commit. The stored pair stays until it
    is due. `found` is the user's Secret (None if there is none), `known` the committed
    certificates. Raise Unreadable if the CA is unusable."""
    identity = user_identity(cluster_id, user.user_name, user.metadata.uid)
    data = {} if found is None else data_of(found)
    held = _held(data, identity)
    former = [] if held is None else data.get(FORMER_KEY, b"").decode("ascii", "replace").split()
    pair = held
    if held is None or _is_due(held, authority, now_ms):
        if held is not None:
            former.insert(0, describe(held.certificate).sha256)
        stated = user.certificate.validity_days if user.certificate is not None else None
        days = stated or CLIENT_DAYS
        pair = issue_client(authority, user.user_name, identity, now_ms, days)
    assert pair is not None, "it is held, or was just made"
    shown = describe(pair.certificate)
    newest = UserCertificate(sha256=shown.sha256, not_after_ms=shown.validity.not_after_ms)
    good = {one.sha256: one for one in known if one.not_after_ms > now_ms}
    kept = [good[one] for one in dict.fromkeys(former) if one in good and one != newest.sha256]
    kept = kept[: CERTIFICATES_MAX - 1]
    return UserPair(pair, tuple(one.sha256 for one in kept), (newest, *kept))


def _held(data: dict[str, bytes], identity: str) -> KeyPair | None:
    """Return the key pair in a Secret's data, or None if it is missing, unusable or not of this
    very user (`identity`)."""
    certificate, key = data.get(CERTIFICATE_KEY), data.get(PRIVATE_KEY)
    if certificate is None or key is None:
        return None
    pair = KeyPair(certificate=certificate, key=key)
    try:
        names = describe(certificate).names
    except Unreadable:
        return None
    return pair if not why_unusable(pair) and names == {identity} else None


def _is_due(pair: KeyPair, authority: KeyPair, now_ms: int) -> bool:
    """Return True if the certificate must be replaced now: it expires soon, or another CA signs
    now."""
    signed = signed_by(pair.certificate, authority.certificate)
    return not signed or describe(pair.certificate).validity.due_ms() <= now_ms
