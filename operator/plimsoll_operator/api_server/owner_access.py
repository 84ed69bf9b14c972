"""Access to the API server behind its socket: only for its owner, who has the token, and for no web
page.

A page that the owner visits can send requests to loopback from the owner's machine. It lacks the
token. It is refused before that check, because a browser names the page's site in `Origin`, or in
`Host` if a name was made to resolve to this machine (DNS rebinding). Pure. Called by `serving` for
every request, whatever its path.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

from plimsoll_operator.api_server.status_errors import StatusError

BEARER = "bearer"


@dataclass(frozen=True, slots=True)
class OwnerAccess:
    """`token` grants full access; `hosts` are the server's own names, `name:port` in lower case."""

    token: str = field(repr=False)
    hosts: frozenset[str]

    def refusal(self, headers: Mapping[str, str]) -> StatusError | None:
        """Return None if the request comes from the owner, else the refusal. `headers` finds names
        in any case."""
        if headers.get("Host", "").lower() not in self.hosts:
            text = f"this server is called {' or '.join(sorted(self.hosts))}, and nothing else"
            return StatusError(403, "Forbidden", text)
        if "Origin" in headers:
            return StatusError(403, "Forbidden", "no web page may ask this server")
        scheme, _, given = headers.get("Authorization", "").partition(" ")
        right = hmac.compare_digest(given.strip().encode(), self.token.encode())
        if scheme.lower() != BEARER or not right:
            text = "Unauthorized: ask with the token that is in the local cluster's kubeconfig"
            return StatusError(401, "Unauthorized", text)
        return None
