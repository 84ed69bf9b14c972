"""Secrets of the operator's namespace that hold a cluster's authorities: that of listeners, that of
clients, and the internal one.  Called by their reconcilers.

An authority is kept before it signs.  What cannot be used is never overwritten, and signs nothing:
`Unreadable` says why, and what is wrong ends by a person alone.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from plimsoll_operator.kube.errors import Conflict, NotFound
from plimsoll_operator.kube.port import Object
from plimsoll_operator.kube.resources import SECRETS
from plimsoll_operator.manifests import listener_secrets as manifests
from plimsoll_operator.manifests.manifest_context import Context
from plimsoll_operator.pki.authority import Unreadable, authority_certificates, why_unusable
from plimsoll_operator.pki.expiry import AuthorityKind, CertificateTimes
from plimsoll_operator.pki.rotation import Authorities
from plimsoll_operator.reconcile.reconcile_term import Term
from plimsoll_operator.reconcile.work_queue import Retry

logger = logging.getLogger("plimsoll.certificates")


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthoritySecret:
    """`name`: of the Secret; `component`: in its labels; `signs`: for whom, in the certificate;
    `kind`: in metrics."""

    name: str
    component: str
    signs: str
    kind: AuthorityKind


def certificate_times(term: Term) -> CertificateTimes:
    """When certificates end, as this term saw them last."""
    return term.kept(CertificateTimes, CertificateTimes)


async def settled(
    term: Term,
    context: Context,
    secret: AuthoritySecret,
    step: Callable[[Authorities | None, str], Authorities],
    show: Callable[[bytes], Awaitable[None]] | None = None,
) -> Authorities:
    """What signs now, and is kept.  `step`: from what is known and a common name, the authorities
    from now on; `show`: called with those that are trusted (PEM), before they are kept.  Raises
    Unreadable, Retry, and what the API server answers."""
    namespace = context.operator_namespace or context.namespace
    found, known = await read_authorities(term, namespace, secret.name)
    if known is not None:
        certificate_times(term).saw_authority(secret.kind, known.current.certificate)
    try:
        now = step(known, f"{context.name} {secret.signs}")
        authority_certificates(now.trusted)
        for pair in (now.current, now.announced):
            if pair is not None and (why := why_unusable(pair)):
                raise Unreadable(why)
    except Unreadable as error:
        raise Unreadable(f"Secret {namespace}/{secret.name}: {error}") from error
    if show is not None:
        await show(now.trusted)
    if now != known:
        wanted = manifests.authority_secret(context, now, secret.name, secret.component)
        await write_secret(term, found, wanted)
        logger.info("Secret %s/%s: %s", namespace, secret.name, _said(known, now))
        certificate_times(term).saw_authority(secret.kind, now.current.certificate)
    return now


def _said(known: Authorities | None, now: Authorities) -> str:
    """What changed, for people."""
    if known is None:
        return "created a CA"
    if replace(known, served=now.served) == now:
        return f"ignored request {now.served!r} to rotate: the last step was only minutes ago"
    if now.announced is not None:
        return "announced the next CA"
    return "switched signing to the next CA" if now.former else "stopped trusting the previous CA"


async def read_authorities(
    term: Term, namespace: str, name: str
) -> tuple[Object | None, Authorities | None]:
    """A Secret that holds authorities, and those; None and None: there is none yet.  Raises
    Unreadable, and what the API server answers."""
    try:
        secret = await term.kube.get(SECRETS, namespace, name)
    except NotFound:
        return None, None
    known = manifests.authorities_of(secret)
    if known is None:
        raise Unreadable(f"Secret {namespace}/{name}: its content was not written by this operator")
    return secret, known


async def write_secret(term: Term, secret: Object | None, wanted: Object) -> None:
    """Create it, or replace what was read, by its resourceVersion."""
    try:
        if secret is None:
            await term.kube.create(SECRETS, wanted)
        else:
            version = secret["metadata"]["resourceVersion"]
            metadata = {**wanted["metadata"], "resourceVersion": version}
            await term.kube.replace(SECRETS, {**wanted, "metadata": metadata})
    except Conflict:
        name = wanted["metadata"]["name"]
        raise Retry(f"Secret {name} changed concurrently", after_ms=500) from None
