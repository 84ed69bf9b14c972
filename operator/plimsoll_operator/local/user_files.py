"""Writes users' credentials to files: DIR/users/<user>/ holds the content of each User's Secret.

Clients on this machine read the files; only the directory's owner can. A file is written when its
Secret changes and removed when the Secret is deleted. Called by the store of the API server in
memory.
"""

from __future__ import annotations

import base64
import logging
from pathlib import Path

from plimsoll_operator.api.labels import USER_LOGIN
from plimsoll_operator.api_server.store import ObjectChange
from plimsoll_operator.kube import resources
from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.local.layout import OutsideFolder, within
from plimsoll_operator.metalog.directory import write_whole

logger = logging.getLogger("plimsoll.local")

LIBRDKAFKA = "librdkafka.conf"
CA = "ca.crt"
CERTIFICATE, KEY = "tls.crt", "tls.key"
FILES = ("password", "java.properties", LIBRDKAFKA, CA, CERTIFICATE, KEY)
LOCATIONS = {
    "ssl.ca.location": CA,
    "ssl.certificate.location": CERTIFICATE,
    "ssl.key.location": KEY,
}


IPV6_SERVERS = "bootstrap.servers=["
NAMES_UNCHECKED = "ssl.endpoint.identification.algorithm=none\n"
"""Switches off librdkafka's check of host names for IPv6 addresses: it compares the address
including its brackets, which no certificate contains. librdkafka still checks that the CA, which
signs only this cluster's brokers, signed the certificate."""


class UserFiles:
    """Keeps the files below `directory` equal to the Secrets of Users. `observe` is called with
    every change of the API server's store."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def observe(self, change: ObjectChange) -> None:
        body = change.after.body
        if change.resource.kind is not resources.SECRETS or body.get("type") != USER_LOGIN:
            return
        values = _values(body)
        name = values.get("username", "")
        if not name:
            return
        secret = f"{body['metadata'].get('namespace', '')}/{body['metadata'].get('name', '')}"
        try:
            directory = within(self._directory, name)
        except OutsideFolder as error:
            logger.warning(
                "the local cluster writes no login files for user %r, because its name is no valid "
                "file name; log in with the values in Secret %s: %s",
                *(name, secret, error),
            )
            return
        if LIBRDKAFKA in values:
            # In a pod only the user knows where the Secret is mounted.
            places = ((key, directory.absolute() / file) for key, file in LOCATIONS.items())
            there = (f"{key}={path}\n" for key, path in places if path.name in values)
            values[LIBRDKAFKA] += "".join(there)
            if IPV6_SERVERS in values[LIBRDKAFKA] and CA in values:
                values[LIBRDKAFKA] += NAMES_UNCHECKED
        try:
            self._settle(directory, {} if change.type == "DELETED" else values)
        except OSError as error:
            logger.warning(
                "the local cluster cannot write the login files of user %s in %s: %s; the login "
                "itself works, with the values in Secret %s; to get the files, remove the cause, "
                "then change that Secret, such as by `kubectl annotate secret`, which writes "
                "them again",
                *(name, directory, error, secret),
            )

    def _settle(self, directory: Path, values: dict[str, str]) -> None:
        for name in FILES:
            path = directory / name
            if name in values:
                self._directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                directory.mkdir(mode=0o700, exist_ok=True)
                write_whole(path, values[name].encode(), private=True)
            else:
                path.unlink(missing_ok=True)
        if not values and directory.exists():
            directory.rmdir()


def _values(body: Object) -> dict[str, str]:
    data = body.get("data") or {}
    return {name: base64.b64decode(value).decode(errors="replace") for name, value in data.items()}
