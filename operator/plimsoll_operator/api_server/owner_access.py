"""Who may ask the API server behind its socket: its owner, who has the token, and no web page.

A page that the owner visits can send requests to loopback from the owner's own machine.  It has not
the token; and it is refused before that, because a browser names the page's site in `Origin`, or,
where a name was made to lead to this machine (DNS rebinding), in `Host`.  Pure.  Called by
`serving` for every request, whatever is asked for.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field

from plimsoll_operator.api_server.status_errors import StatusError

BEARER = "bearer"


@dataclass(frozen=True, slots=True)
class OwnerAccess:
    """`token` opens everything; `hosts`: what the server is called, `name:port` in lower case."""

    token: str = field(repr=False)
    hosts: frozenset[str]

    def refusal(self, headers: Mapping[str, str]) -> StatusError | None:
        """None: it is the owner.  `headers` finds names in any case."""
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
