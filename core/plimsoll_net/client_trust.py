"""The TLS context of a client of servers outside of the cluster, such as one of S3."""

from __future__ import annotations

import ssl


class BadAuthority(Exception):
    """Raised if authorities cannot be used. The message is a part of a sentence."""


def client_context(authority: str) -> ssl.SSLContext:
    """Return a context that checks a server's name and certificate: against `authority`,
    certificates in PEM, or against the system's authorities if it is empty. Raises
    `BadAuthority`."""
    try:
        return ssl.create_default_context(cadata=authority or None)
    except (ssl.SSLError, ValueError) as error:
        raise BadAuthority(f"the CA has no readable certificate in PEM form: {error}") from error
