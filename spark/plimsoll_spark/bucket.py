"""Stores the files of runs in a bucket of an S3 server, and copies them back for a later driver.

Called by `uploads` and `evidence`. An object appears whole or not at all. Each request has a time
limit and a bound of attempts. The credentials are files, read at each connection; no message
contains them.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO
from urllib.parse import urlsplit

import pyarrow as pa
from pyarrow.fs import AwsStandardS3RetryStrategy, FileSelector, FileType, S3FileSystem

from plimsoll_spark.settings import S3

CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S, ATTEMPTS = 5.0, 20.0, 4
PIECE_BYTES = 4 * 1024 * 1024
FILES_MAX = 100_000
"""The most objects of a run that are downloaded."""
DOWNLOAD_BYTES_MAX = 8 * 2**30
"""Bound on the bytes of a run that are downloaded: the size of the driver's temporary directory."""
ACCESS_KEY, SECRET_KEY, SESSION_TOKEN = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
)
AUTHORITY = "ca.crt"
REGION_DEFAULT = "us-east-1"
"""The region if none is requested. Without one, the library would ask for it at addresses of
clouds."""


class Unreachable(Exception):
    """The bucket refused a request, or did not answer any of `ATTEMPTS` attempts."""


class Unsafe(Exception):
    """The bucket lists an object that no run stores: its key leads out of the run's directory, or
    the run has too many objects or bytes. Its text is a sentence without an end."""


class Bucket:
    """The part of a bucket below a prefix, in which each run has a directory."""

    def __init__(self, requested: S3, login: Path) -> None:
        """`login`: the directory with the files `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`; if
        needed `AWS_SESSION_TOKEN`, and `ca.crt` (the server's authorities)."""
        self._requested = requested
        self._login = login

    def url(self, run: str) -> str:
        """Return the URL of a run's directory."""
        return f"s3://{self._path(run)}"

    def upload(self, path: Path, run: str, name: str) -> None:
        """Store the file `path` as the object `name` of the run, replacing an older one. Raises
        `Unreachable`, and OSError if the file cannot be read."""
        with path.open("rb") as file:
            try:
                with self._connected().open_output_stream(f"{self._path(run)}/{name}") as stream:
                    while piece := file.read(PIECE_BYTES):
                        stream.write(piece)
            except (OSError, pa.ArrowException) as error:
                raise self._unreachable(error) from None

    def download(self, run: str, directory: Path) -> bool:
        """Copy all objects of a run to files below `directory`, replacing files of the same names.
        Return False if the run has no object. Raises `Unreachable`; `Unsafe`, before a file is
        written if the list shows it; and OSError if a file cannot be written or the copying of an
        object breaks off."""
        root = self._path(run)
        try:
            connected = self._connected()
            found = connected.get_file_info(
                FileSelector(root, recursive=True, allow_not_found=True)
            )
        except (OSError, pa.ArrowException) as error:
            raise self._unreachable(error) from None
        objects = [one for one in found if one.type == FileType.File]
        if len(objects) > FILES_MAX:
            raise Unsafe(
                f"the evidence of the run has {len(objects)} objects in the bucket; at most "
                f"{FILES_MAX} are allowed"
            )
        paths = [(one.path, _place(directory, root, one.path)) for one in objects]
        left = DOWNLOAD_BYTES_MAX
        for key, path in paths:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
            try:
                with (
                    connected.open_input_stream(key) as stream,
                    os.fdopen(os.open(path, flags, 0o600), "wb") as file,
                ):
                    left -= _copy(stream, file, left)
            except pa.ArrowException as error:
                raise self._unreachable(error) from None
        return bool(objects)

    def delete(self, run: str) -> None:
        """Delete all objects of a run. Raises `Unreachable`."""
        try:
            self._connected().delete_dir(self._path(run))
        except (OSError, pa.ArrowException) as error:
            raise self._unreachable(error) from None

    def remove(self, run: str, name: str) -> None:
        """Delete one object of a run. Raises `Unreachable`."""
        try:
            self._connected().delete_file(f"{self._path(run)}/{name}")
        except FileNotFoundError:
            return
        except (OSError, pa.ArrowException) as error:
            raise self._unreachable(error) from None

    def _path(self, run: str) -> str:
        prefix = self._requested.prefix.strip("/")
        return "/".join(part for part in (self._requested.bucket, prefix, run) if part)

    def _connected(self) -> S3FileSystem:
        """Return a client with the present credentials, which may have been replaced."""
        requested, authority = self._requested, self._login / AUTHORITY
        url = urlsplit(requested.endpoint or "https:")
        return S3FileSystem(
            access_key=self._secret(ACCESS_KEY),
            secret_key=self._secret(SECRET_KEY),
            session_token=self._secret(SESSION_TOKEN),
            region=requested.region or REGION_DEFAULT,
            scheme=url.scheme,
            endpoint_override=url.netloc or None,
            tls_ca_file_path=str(authority) if authority.exists() else None,
            connect_timeout=CONNECT_TIMEOUT_S,
            request_timeout=REQUEST_TIMEOUT_S,
            retry_strategy=AwsStandardS3RetryStrategy(max_attempts=ATTEMPTS),
            background_writes=False,
        )

    def _secret(self, name: str) -> str | None:
        path = self._login / name
        return path.read_text().strip() if path.exists() else None

    def _unreachable(self, error: Exception) -> Unreachable:
        text = str(error)
        for name in (ACCESS_KEY, SECRET_KEY, SESSION_TOKEN):
            secret = self._secret(name)
            text = text.replace(secret, "***") if secret else text
        return Unreachable(text[:500])


def _place(directory: Path, root: str, key: str) -> Path:
    """Return the path below `directory` for the object `key` of the run with the key `root`. Raises
    `Unsafe` if the key, or a symbolic link, leads elsewhere: the server may be hostile."""
    parts = key.removeprefix(f"{root}/").split("/")
    path = directory.joinpath(*parts)
    below = key.startswith(f"{root}/") and not {"", ".", ".."} & set(parts) and "\0" not in key
    if not below or not path.parent.resolve().is_relative_to(directory.resolve()):
        raise Unsafe(
            f"the bucket's list for the run has the object {key[:200]!r}, which is not in the "
            "run's directory"
        )
    return path


def _copy(stream: pa.NativeFile, file: BinaryIO, most: int) -> int:
    """Copy a stream to a file and return its number of bytes. Raises `Unsafe` after `most`."""
    copied = 0
    while piece := stream.read(PIECE_BYTES):
        copied += len(piece)
        if copied > most:
            raise Unsafe(
                "the evidence of the run in the bucket has more than the allowed "
                f"{DOWNLOAD_BYTES_MAX} bytes"
            )
        file.write(piece)
    return copied
