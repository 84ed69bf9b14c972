"""A listener that asks clients for certificates, and certificates of all kinds to show to it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from uuid import UUID

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from msgspec.structs import replace
from tests.integration.listening import free_ports
from tests.plimsoll_broker.security.secured import Connection, Secured
from tests.plimsoll_broker.tls_listening import HOST, now_ms, write_pair

from plimsoll_broker.config import Address, BrokerConfig
from plimsoll_broker.handlers.long_work import Aside
from plimsoll_broker.handlers.security.gate import guarded
from plimsoll_broker.node.client_listeners import ClientListeners
from plimsoll_broker.security.certificate_logins import CertificateLogins
from plimsoll_broker.server.client_memory import ClientMemory, budgets_of
from plimsoll_broker.server.connection_limits import ListenerLimits
from plimsoll_broker.server.dispatch import Dispatch
from plimsoll_broker.server.listener import BrokerListener
from plimsoll_core.cluster import records as r
from plimsoll_core.cluster.listeners import Listener
from plimsoll_core.security.acl import Acl
from plimsoll_core.security.client_certificates import (
    OWN_AUTHORITY,
    ClientAuthority,
    UserCertificate,
    UserCertificates,
    user_identity,
)
from plimsoll_core.security.state import DeclaredUser, Mode, UserObject
from plimsoll_operator.pki.authority import KeyPair, describe, issue, issue_client, new_authority

CLUSTER = UUID(int=1)
DAY = timedelta(days=1)


def der(pem: bytes) -> bytes:
    return ssl.PEM_cert_to_DER_cert(pem.decode())


def own(*authorities: KeyPair) -> ClientAuthority:
    certificates = tuple(der(one.certificate) for one in authorities)
    return ClientAuthority(name=OWN_AUTHORITY, certificates=certificates)


def other(name: str, *authorities: KeyPair) -> ClientAuthority:
    certificates = tuple(der(one.certificate) for one in authorities)
    return ClientAuthority(name=name, certificates=certificates, source="ConfigMap ca")


def a_pair(
    authority: KeyPair | None,
    subject: Iterable[tuple[x509.ObjectIdentifier, str]] = ((NameOID.COMMON_NAME, "alice"),),
    *,
    begins: timedelta = -DAY,
    ends: timedelta = DAY,
    usages: tuple[x509.ObjectIdentifier, ...] | None = (ExtendedKeyUsageOID.CLIENT_AUTH,),
    uris: tuple[str, ...] = (),
    signs: bool = False,
) -> KeyPair:
    """What no operator would sign.  `authority` None: it signs itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    attributes = [x509.NameAttribute(oid, text, _validate=False) for oid, text in subject]
    name = x509.Name(attributes)
    signer, signing = name, key
    if authority is not None:
        signer = x509.load_pem_x509_certificates(authority.certificate)[0].subject
        loaded = serialization.load_pem_private_key(authority.key, None)
        assert isinstance(loaded, ec.EllipticCurvePrivateKey)
        signing = loaded
    now = datetime.now(UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(signer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now + begins)
        .not_valid_after(now + ends)
        .add_extension(x509.BasicConstraints(ca=signs, path_length=None), critical=True)
    )
    if usages is not None:
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    if uris:
        names = [x509.UniformResourceIdentifier(uri) for uri in uris]
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    made = builder.sign(signing, hashes.SHA256())
    return KeyPair(
        certificate=made.public_bytes(serialization.Encoding.PEM),
        key=key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )


class Certified:
    """A broker's listeners, of which one asks for certificates; `secured` changes what is
    committed."""

    def __init__(self, directory: Path, authentication: tuple[str, ...], *acls: Acl) -> None:
        self.secured = Secured(Mode.ENFORCE, *acls)
        self.authority = new_authority("test clients", now_ms())
        self.servers_authority = new_authority("test listeners", now_ms())
        self.port = free_ports(1)[0]
        self.directory = directory
        write_pair(directory / "pki", issue(self.servers_authority, (HOST,), now_ms()))
        config = BrokerConfig(
            cluster_id=CLUSTER,
            broker_id=0,
            data_dir=str(directory),
            listen=Address(host=HOST, port=self.port),
            advertised=Address(host=HOST, port=self.port),
            replication=Address(host=HOST, port=0),
            controllers=("c:1",),
            certificates=str(directory / "pki"),
        )
        dispatch = Dispatch(guarded(self.secured.handlers, self.secured.authority, Aside()))
        self.logins = CertificateLogins(self.secured.authority)
        self.listeners = ClientListeners(
            *(config, dispatch, ListenerLimits(), ClientMemory(budgets_of(None))),
            certificates=self.logins,
        )
        self.listener = Listener(
            name="tls", port=self.port, tls_version_min="1.2", authentication=authentication
        )
        self._files = 0

    @property
    def server(self) -> BrokerListener:
        return self.listeners.servers["tls"]

    async def settle(self) -> None:
        image = replace(self.secured.watch.image, listeners=(self.listener,))
        await self.listeners.settle(image)
        assert not self.listeners.closed, self.listeners.closed

    async def believe(self, *authorities: ClientAuthority) -> None:
        self.secured.change(r.ClientAuthoritiesConfigured(cause="t", authorities=authorities))
        await self.settle()

    def a_user(self, name: str = "alice") -> KeyPair:
        """A certificate of the cluster's own authority, and committed."""
        pair = self.unknown(name)
        self.commit(name, pair)
        return pair

    def unknown(self, name: str = "alice") -> KeyPair:
        """One that is not committed."""
        return issue_client(self.authority, name, user_identity(CLUSTER, name, "uid"), now_ms())

    def commit(self, user: str, *pairs: KeyPair) -> None:
        found = [describe(pair.certificate) for pair in pairs]
        rows = tuple(
            UserCertificate(sha256=one.sha256, not_after_ms=one.validity.not_after_ms)
            for one in found
        )
        row = UserCertificates(user=user, owner="uid", certificates=rows)
        self.secured.change(r.UserCertificatesSet(cause="t", row=row))

    def disable(self, user: str) -> None:
        declared = DeclaredUser(
            object=UserObject(namespace="n", name="o", uid="uid"), user_name=user, disabled=True
        )
        self.secured.change(r.UserDeclared(cause="t", user=declared))

    def context(
        self, pair: KeyPair | None, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
    ) -> ssl.SSLContext:
        authorities = self.servers_authority.certificate.decode()
        context = ssl.create_default_context(cadata=authorities)
        context.minimum_version = context.maximum_version = version
        if pair is not None:
            self._files += 1
            file = self.directory / f"client-{self._files}.pem"
            file.write_bytes(pair.certificate + pair.key)
            context.load_cert_chain(file)
        return context

    @asynccontextmanager
    async def client(
        self, pair: KeyPair | None, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3
    ) -> AsyncIterator[Connection]:
        reader, writer = await asyncio.open_connection(
            HOST, self.port, ssl=self.context(pair, version), server_hostname=HOST
        )
        try:
            yield Connection(reader, writer)
        finally:
            writer.transport.abort()


@asynccontextmanager
async def certified(
    directory: Path, *acls: Acl, authentication: tuple[str, ...] = ("Tls",)
) -> AsyncIterator[Certified]:
    made = Certified(directory, authentication, *acls)
    try:
        await made.believe(own(made.authority))
        yield made
    finally:
        await made.listeners.stop()
        made.secured.authority.close()
