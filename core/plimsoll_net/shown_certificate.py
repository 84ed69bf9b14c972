"""The certificate that a listener presents. It is read again when its files have changed.

A kubelet swaps all files of a mounted Secret at once by changing the link `..data`. Both files are
therefore read from the directory to which the link leads, where they never change. A listener calls
`look` every few seconds. If the new files cannot be used, the former certificate stays in use. New
connections get the newest TLS context; open connections keep theirs.
"""

from __future__ import annotations

import logging
import ssl
from pathlib import Path

from plimsoll_net.tls_policy import BadCertificate, ClientTrust, server_context

logger = logging.getLogger("plimsoll.shown_certificate")

LOOK_S = 5.0
_SWAPPED = "..data"

Seen = tuple[tuple[int, int, int], ...]
"""Inode, time of change (in ns) and size of each file, by which a change is noticed."""


class ShownCertificate:
    """The certificate that one listener presents, read from `<name>.crt` and `<name>.key` in
    `directory`."""

    def __init__(
        self,
        directory: Path,
        name: str,
        version_min: str,
        clients: ClientTrust | None = None,
    ) -> None:
        """Create a certificate that is not read yet. `version_min`: the oldest TLS version to
        accept. `clients`: the authorities of client certificates; None if clients are not asked for
        one."""
        self._directory = directory
        self._name = name
        self._version_min = version_min
        self._clients = clients
        # The last files that were read, usable or not; None: they were missing.
        self._seen: Seen | None = None
        self._context: ssl.SSLContext | None = None
        # The reason why the present files are unusable; empty: they are in use.
        self.error = ""
        # Number of times that a new certificate was loaded.
        self.taken = 0

    @property
    def context(self) -> ssl.SSLContext | None:
        """Return the TLS context for new connections, or None until there is a usable
        certificate."""
        return self._context

    def speak(self, name: str, version_min: str, clients: ClientTrust | None = None) -> None:
        """Set the listener's name, the oldest TLS version and the authorities of client
        certificates, for new connections. If one has changed, read the certificate again."""
        if (name, version_min, clients) != (self._name, self._version_min, self._clients):
            self._name, self._version_min, self._clients = name, version_min, clients
            self._seen = None
            self.look()

    def look(self) -> bool:
        """Read the files again if they have changed. Return True if another certificate is
        presented from now on. If the files are missing or unusable, the former certificate stays in
        use, `error` says why, and the result is False."""
        place = place_of(self._directory)
        chain, key = place / f"{self._name}.crt", place / f"{self._name}.key"
        try:
            seen = (_seen(chain), _seen(key))
        except OSError as error:
            if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
                self._fail(
                    None,
                    f"the directory {self._directory} cannot be read: {error.strerror or error}",
                )
                return False
            self._fail(
                None, f"the file {chain.name} or {key.name} does not exist in {self._directory}"
            )
            return False
        if seen == self._seen:
            return False
        try:
            self._context = server_context(chain, key, self._version_min, self._clients)
        except BadCertificate as error:
            self._fail(seen, str(error))
            return False
        self._seen, self.error = seen, ""
        self.taken += 1
        logger.info(
            "listener %s of this broker now presents the certificate in the file %s",
            self._name,
            chain.name,
        )
        return True

    def _fail(self, seen: Seen | None, why: str) -> None:
        if why != self.error:
            shown = (
                "still presents its previous certificate"
                if self._context is not None
                else "stays closed"
            )
            logger.warning(
                "listener %s of this broker %s, because the broker cannot load the listener's "
                "certificate; it tries again when the Secret of the certificate changes, so "
                "correct that Secret: %s",
                *(self._name, shown, why),
            )
        self._seen, self.error = seen, why


def _seen(path: Path) -> tuple[int, int, int]:
    stat = path.stat()
    return stat.st_ino, stat.st_mtime_ns, stat.st_size


def place_of(directory: Path) -> Path:
    """Return the directory that holds the files of `directory` now: the target of its link
    `..data`, or `directory` itself without such a link. A kubelet replaces the files of a mounted
    Secret by changing this link; with the link resolved once, all files are read from the same
    version."""
    try:
        return (directory / _SWAPPED).resolve(strict=True)
    except (FileNotFoundError, NotADirectoryError):
        return directory
