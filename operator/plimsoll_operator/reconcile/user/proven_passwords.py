"""Remembers which password each committed SCRAM credential was derived from.

A derivation takes milliseconds of processor time (RFC 5802), and every User is looked at again at
each resync. So a credential is derived again only if the password or the credential differs from
what was last found to match. Called by the User's reconciler; its term keeps one instance.
"""

from __future__ import annotations

import hashlib
import secrets

from plimsoll_core.security.scram import ScramCredential, ScramMechanism
from plimsoll_operator.kube.seen_objects import Key


class ProvenPasswords:
    """By User object, as many as there are. No password is kept: only a hash of it and of the
    credential, under a key that no other process knows."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)
        self._marks: dict[Key, dict[ScramMechanism, bytes]] = {}

    def prove(self, user: Key, credential: ScramCredential, password: str) -> None:
        """Remember that the credential was derived from the password."""
        self._marks.setdefault(user, {})[credential.mechanism] = self._mark(credential, password)

    def proven(self, user: Key, credential: ScramCredential, password: str) -> bool:
        """Return True if the credential is known to be derived from the password."""
        mark = self._marks.get(user, {}).get(credential.mechanism)
        return mark is not None and mark == self._mark(credential, password)

    def forget(self, user: Key) -> None:
        """Drop what is known of a User object that is gone."""
        self._marks.pop(user, None)

    def _mark(self, credential: ScramCredential, password: str) -> bytes:
        made = hashlib.blake2b(key=self._key, digest_size=32)
        for part in (
            credential.salt,
            str(credential.iterations).encode(),
            credential.stored_key,
            credential.server_key,
            password.encode(),
        ):
            made.update(len(part).to_bytes(4, "big") + part)
        return made.digest()
