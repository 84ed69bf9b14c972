"""Replaces OpenSSL, X.509 and kubelets' mounts by simulated ones while a world exists.

Modules import the functions of `pki.authority` and `tls_policy` by name, so `instead` finds each
module that holds one of them and replaces it there.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from plimsoll_broker.security import certificate_logins
from plimsoll_net import handshakes, shown_certificate, tls_policy
from plimsoll_net.inside_identity import FILES, InsideFiles
from plimsoll_operator.pki import authority, rotation
from plimsoll_operator.reconcile.cluster import authorities
from plimsoll_operator.reconcile.user import reconcile as user_reconciler
from plimsoll_sim.environment import certificates, simulated_tls

Mounted = Callable[[str], dict[str, bytes]]
"""Function that returns the files (content by name) of a directory at which a Secret is mounted."""
OF_AUTHORITY = (
    "new_authority",
    "issue",
    "issue_inside",
    "describe",
    "signed_by",
    "why_unusable",
    "issue_client",
    "authority_certificates",
)
OF_TLS = ("mutual_context", "asking_context")
BRIEF: tuple[tuple[Any, str, int], ...] = (
    (rotation, "OVERLAP_MS", 12),
    (rotation, "CLIENT_OVERLAP_MS", 3),
    (authorities, "LOOK_MS", 36),
    (user_reconciler, "LOOK_MS", 36),
)
"""Periods of days that are shortened in simulations: (module, constant, part of a client
authority's lifetime), and the periods of checks."""


@contextmanager
def _brief(life_ms: int | None) -> Iterator[None]:
    """Shorten the periods in `BRIEF` for client authorities that live `life_ms` milliseconds,
    within the context. None: change nothing."""
    before = [(module, name, getattr(module, name)) for module, name, _ in BRIEF]
    if life_ms is not None:
        for module, name, part in BRIEF:
            setattr(module, name, life_ms // part)
    try:
        yield
    finally:
        for module, name, shipped in before:
            setattr(module, name, shipped)


def _pairs(mounted: Mounted, life_ms: int | None) -> list[tuple[Any, Any]]:
    of_authority: dict[str, Any] = {name: getattr(certificates, name) for name in OF_AUTHORITY}
    if life_ms is not None:
        of_authority["new_authority"] = partial(certificates.brief_authority, life_ms)
    found = [(getattr(authority, name), value) for name, value in of_authority.items()]
    found += [(getattr(tls_policy, name), getattr(simulated_tls, name)) for name in OF_TLS]
    found.append((handshakes._NOTHING_TO_SHOW, simulated_tls.asking_context(lambda _: None)))
    found.append((certificate_logins.read, certificates.read))
    found += [(tls_policy.server_context, _listens(mounted)),
              (shown_certificate._seen, _seen(mounted))]  # fmt: skip
    return found


@contextmanager
def instead(mounted: Mounted, life_ms: int | None) -> Iterator[None]:
    """Replace the functions for certificates and TLS by simulated ones, within the context.
    `mounted`: returns the files of a mounted directory. `life_ms`: lifetime of clients'
    authorities, None: the product's own."""
    pairs = _pairs(mounted, life_ms)
    places = [
        (module, name, shipped, simulated)
        for module in _modules()
        for name, value in list(vars(module).items())
        for shipped, simulated in pairs
        if value is shipped
    ]
    read = InsideFiles._read
    for module, name, _, simulated in places:
        setattr(module, name, simulated)
    InsideFiles._read = _reads(mounted)  # type: ignore[method-assign, assignment]
    try:
        with _brief(life_ms):
            yield
    finally:
        InsideFiles._read = read  # type: ignore[method-assign]
        for module, name, shipped, _ in places:
            setattr(module, name, shipped)


def _modules() -> list[Any]:
    shells = ("plimsoll_net.", "plimsoll_operator.", "plimsoll_broker.")
    return [sys.modules[name] for name in sorted(sys.modules) if name.startswith(shells)]


def _listens(mounted: Mounted) -> Callable[..., simulated_tls.SimContext]:
    def server_context(
        chain: Path, key: Path, _: str, clients: tls_policy.ClientTrust | None = None
    ) -> simulated_tls.SimContext:
        files = mounted(str(chain.parent))
        return simulated_tls.listener_context(files[chain.name] + files[key.name], clients)

    return server_context


def _seen(mounted: Mounted) -> Callable[[Path], tuple[int, int, int]]:
    def seen(path: Path) -> tuple[int, int, int]:
        found = mounted(str(path.parent)).get(path.name)
        if found is None:
            raise FileNotFoundError(path)
        return zlib.crc32(found), 0, len(found)

    return seen


def _reads(mounted: Mounted) -> Callable[[InsideFiles], tuple[bytes, bytes, bytes, bytes] | None]:
    def read(files: InsideFiles) -> tuple[bytes, bytes, bytes, bytes] | None:
        found = mounted(str(files._directory))
        if not all(name in found for name in FILES):
            return None
        certificate, key, authorities, mode = (found[name] for name in FILES)
        return certificate, key, authorities, mode

    return read
