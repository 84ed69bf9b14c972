"""TLS settings of all listeners: versions, cipher suites, and features that are switched off.

TLS 1.2 or later, with forward secrecy and authenticated encryption only; no compression, no
renegotiation, no early data. A context is made from a certificate and its key, which are checked
before it is used. `ssl.create_default_context` is not used, because it writes the keys of every
session to the file that SSLKEYLOGFILE names. Source: RFC 9325 (BCP 195).
"""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

SUITES_1_2 = "ECDHE+AESGCM:ECDHE+CHACHA20"
"""Cipher suites that are allowed with TLS 1.2. All suites of TLS 1.3 are allowed, since they have
the same properties."""
_VERSIONS = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}
OP_PRIORITIZE_CHACHA = 0x200000
"""Value of SSL_OP_PRIORITIZE_CHACHA, for which Python has no name: a client that prefers ChaCha20
gets it. Such a client has no processor instructions for AES, or a JVM that does not use them (as
Spark's in short runs), so that AES-GCM costs it four times as much. Other clients get the server's
choice."""
_OPTIONS = (
    ssl.OP_NO_COMPRESSION
    | ssl.OP_NO_RENEGOTIATION
    | ssl.OP_SINGLE_ECDH_USE
    | ssl.OP_CIPHER_SERVER_PREFERENCE
    | OP_PRIORITIZE_CHACHA
)


ServerTls = ssl.SSLContext
"""A server's TLS context, for modules that only pass it on and do not import `ssl`."""


class BadCertificate(Exception):
    """Raised if a certificate or its key cannot be used. The message is a sentence for the log."""


class ClientTrust(NamedTuple):
    """The authorities that a listener trusts for client certificates. `authorities`: certificates
    (DER), each of which is trusted even if another signed it; `required`: True if a client without
    a certificate is refused."""

    authorities: tuple[bytes, ...] = ()
    required: bool = False


def server_context(
    chain: Path, key: Path, version_min: str, clients: ClientTrust | None = None
) -> ssl.SSLContext:
    """Return the TLS context of a listener. `chain`, `key`: PEM files that belong together;
    `version_min`: "1.2" or "1.3"; `clients`: None if clients are not asked for a certificate.
    Raises BadCertificate if a file cannot be read or used."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = _VERSIONS[version_min]
    context.set_ciphers(SUITES_1_2)
    context.options |= _OPTIONS
    try:
        context.load_cert_chain(chain, key, password=_no_password)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise BadCertificate(
            f"the certificate file {chain.name} and the key file {key.name} cannot be used: {error}"
        ) from error
    if clients is not None:
        _ask_clients(context, clients)
    return context


def pair_context(pair: bytes) -> ServerTls:
    """Return the same context as `server_context`, from TLS 1.2 on and without client certificates,
    for a certificate and its key in one PEM text, without leaving a file. Raises BadCertificate."""
    with _as_file(pair) as path:
        return server_context(Path(path), Path(path), "1.2")


def _ask_clients(context: ssl.SSLContext, clients: ClientTrust) -> None:
    """Make the context request a certificate from each client. OpenSSL verifies its chain, times
    and purpose. Session tickets are off, since a resumed session would present no certificate."""
    context.verify_mode = ssl.CERT_REQUIRED if clients.required else ssl.CERT_OPTIONAL
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN
    context.options |= ssl.OP_NO_TICKET
    context.num_tickets = 0
    for der in clients.authorities:
        try:
            context.load_verify_locations(cadata=der)
        except (ssl.SSLError, ValueError) as error:
            raise BadCertificate(
                f"the certificate of a client CA cannot be used: {error}"
            ) from error


NO_CHECK_TIME = 0x200000
"""Value of X509_V_FLAG_NO_CHECK_TIME, for which Python has no name: the times in certificates are
not checked."""


def mutual_context(pair: bytes, authorities: bytes, *, server: bool) -> ssl.SSLContext:
    """Return the context for one end of a connection on which both ends present a certificate
    signed by `authorities` (PEM). Raises BadCertificate.

    `pair`: PEM of this end's certificate and its key. Names and times in certificates are not
    checked: a peer is accepted by its identity and by what is committed, so that a wrong clock or a
    late renewal does not cut it off. There are no session tickets: each connection presents its
    certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.options |= _OPTIONS | ssl.OP_NO_TICKET
    context.check_hostname = False
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags = ssl.VerifyFlags(int(context.verify_flags) | NO_CHECK_TIME)
    if server:
        context.num_tickets = 0
    try:
        context.load_verify_locations(cadata=authorities.decode("ascii"))
        with _as_file(pair) as path:
            context.load_cert_chain(path, password=_no_password)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise BadCertificate(
            "the internal certificate, its key and the trusted CAs cannot be used together: "
            f"{error}"
        ) from error
    return context


def asking_context(find: Callable[[str | None], ssl.SSLContext | None]) -> ssl.SSLContext:
    """Return a server's context for the time until the client has stated the requested server name.
    It presents no certificate and trusts none. `find`: returns the context to continue with for
    that name (None if the client stated none), or None to fail the handshake."""

    def asked_for(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> int | None:
        found = find(name)
        if found is None:
            return ssl.ALERT_DESCRIPTION_UNRECOGNIZED_NAME
        # This one's `verify_mode` and flags stay in force, and the other's authorities count.
        connection.context = found
        return None

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.options |= _OPTIONS | ssl.OP_NO_TICKET
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags = ssl.VerifyFlags(int(context.verify_flags) | NO_CHECK_TIME)
    context.num_tickets = 0
    context.sni_callback = asked_for
    return context


@contextmanager
def _as_file(data: bytes) -> Iterator[str]:
    """Yield a path to a file with the data, in memory where the system has memfd: OpenSSL loads a
    key only from a path."""
    if not hasattr(os, "memfd_create"):
        with tempfile.NamedTemporaryFile() as file:  # readable by its owner alone
            file.write(data)
            file.flush()
            yield file.name
        return
    descriptor = os.memfd_create("pair", os.MFD_CLOEXEC)
    try:
        with os.fdopen(descriptor, "wb", closefd=False) as file:
            file.write(data)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _no_password() -> str:
    """Raise ValueError, so that OpenSSL does not ask for a password on the terminal."""
    raise ValueError("the private key of the certificate is encrypted; store an unencrypted key")
