"""Stores the files of runs in a bucket of an S3 server, and copies them back for a later driver.

Called by `uploads` and `evidence`. An object appears whole or not at all. Each request has a time
limit and a bound of attempts. The credentials are files, read at each connection; no message
contains them. The library has no request that creates an object only if there is none, so `create`
sends one itself, signed by AWS Signature Version 4 (Amazon S3 API Reference, "Authenticating
Requests: Using the Authorization Header").
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import os
import ssl
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO
from urllib.parse import quote, urlsplit

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
NOT_CREATED = frozenset({409, 412})
"""Statuses of a request to create an object that exists, or that another request creates."""
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

    def create(self, run: str, name: str, content: bytes) -> bool:
        """Store an object if the run has none of that name. Return False if it has another one; the
        same content is taken for that of an earlier attempt of this call. A server that knows no
        conditional request may let two calls at the same time both store theirs: the one that
        finds its own afterwards has created it. Raises `Unreachable`."""
        key = f"{self._path(run)}/{name}"
        connected = self._connected()
        failure: Exception | None = None
        for _ in range(ATTEMPTS):
            try:
                if connected.get_file_info(key).type == FileType.NotFound:
                    status = self._put_new(key, content)
                    if status // 100 != 2 and status not in NOT_CREATED:
                        raise OSError(f"the server answered a conditional PUT with status {status}")
                with connected.open_input_stream(key) as stream:
                    return bool(stream.read() == content)
            except (OSError, http.client.HTTPException, pa.ArrowException) as error:
                failure = error
        assert failure is not None
        raise self._unreachable(failure)

    def names(self, run: str, directory: str) -> list[str]:
        """Return the names of the objects right below a directory of the run. Raises
        `Unreachable`."""
        try:
            found = self._connected().get_file_info(
                FileSelector(f"{self._path(run)}/{directory}", allow_not_found=True)
            )
        except (OSError, pa.ArrowException) as error:
            raise self._unreachable(error) from None
        return [one.base_name for one in found if one.type == FileType.File]

    def read(self, run: str, name: str) -> bytes | None:
        """Return the content of one object of a run, None if there is none. Raises
        `Unreachable`."""
        try:
            with self._connected().open_input_stream(f"{self._path(run)}/{name}") as stream:
                return bytes(stream.read(PIECE_BYTES))
        except FileNotFoundError:
            return None
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
                f"the Verification's run has {len(objects)} evidence files in the bucket, more "
                f"than a driver pod can read ({FILES_MAX}); create a new Verification"
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

    def _put_new(self, key: str, content: bytes) -> int:
        """Send a PUT that the server carries out only if there is no such object. Return the status
        of its answer."""
        region = self._requested.region or REGION_DEFAULT
        endpoint = self._requested.endpoint or f"https://s3.{region}.amazonaws.com"
        url, authority = urlsplit(endpoint), self._login / AUTHORITY
        path = quote(f"{url.path.rstrip('/')}/{key}", safe="/-_.~")
        headers = {
            "host": url.netloc,
            "if-none-match": "*",
            "x-amz-content-sha256": hashlib.sha256(content).hexdigest(),
            "x-amz-date": datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ"),
        }
        if token := self._secret(SESSION_TOKEN):
            headers["x-amz-security-token"] = token
        access, secret = self._secret(ACCESS_KEY) or "", self._secret(SECRET_KEY) or ""
        headers["authorization"] = _authorization(path, headers, region, access, secret)
        if url.scheme == "http":
            connection = http.client.HTTPConnection(url.netloc, timeout=REQUEST_TIMEOUT_S)
        else:
            trust = ssl.create_default_context(cafile=authority if authority.exists() else None)
            connection = http.client.HTTPSConnection(
                url.netloc, timeout=REQUEST_TIMEOUT_S, context=trust
            )
        try:
            connection.request("PUT", path, content, headers)
            return connection.getresponse().status
        finally:
            connection.close()

    def _secret(self, name: str) -> str | None:
        path = self._login / name
        return path.read_text().strip() if path.exists() else None

    def _unreachable(self, error: Exception) -> Unreachable:
        text = str(error)
        for name in (ACCESS_KEY, SECRET_KEY, SESSION_TOKEN):
            secret = self._secret(name)
            text = text.replace(secret, "***") if secret else text
        return Unreachable(text[:500])


def _authorization(
    path: str, headers: dict[str, str], region: str, access_key: str, secret_key: str
) -> str:
    """Return the value of the header `Authorization` of a PUT; all `headers`, with lower-case names
    and sorted, are signed."""
    names, at = ";".join(headers), headers["x-amz-date"]
    lines = "".join(f"{name}:{value}\n" for name, value in headers.items())
    canonical = "\n".join(("PUT", path, "", lines, names, headers["x-amz-content-sha256"]))
    scope = f"{at[:8]}/{region}/s3/aws4_request"
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    key = f"AWS4{secret_key}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    text = f"AWS4-HMAC-SHA256\n{at}\n{scope}\n{digest}"
    signature = hmac.new(key, text.encode(), "sha256").hexdigest()
    return (
        f"AWS4-HMAC-SHA256 Credential={access_key}/{scope}, SignedHeaders={names}, "
        f"Signature={signature}"
    )


def _place(directory: Path, root: str, key: str) -> Path:
    """Return the path below `directory` for the object `key` of the run with the key `root`. Raises
    `Unsafe` if the key, or a symbolic link, leads elsewhere: the server may be hostile."""
    parts = key.removeprefix(f"{root}/").split("/")
    path = directory.joinpath(*parts)
    below = key.startswith(f"{root}/") and not {"", ".", ".."} & set(parts) and "\0" not in key
    if not below or not path.parent.resolve().is_relative_to(directory.resolve()):
        raise Unsafe(
            f"the bucket lists the object {key[:200]!r} among the evidence files of the "
            "Verification's run, but it lies outside their directory; delete it"
        )
    return path


def _copy(stream: pa.NativeFile, file: BinaryIO, most: int) -> int:
    """Copy a stream to a file and return its number of bytes. Raises `Unsafe` after `most`."""
    copied = 0
    while piece := stream.read(PIECE_BYTES):
        copied += len(piece)
        if copied > most:
            raise Unsafe(
                "the evidence files of the Verification's run in the bucket have more bytes than "
                f"a driver pod can read ({DOWNLOAD_BYTES_MAX}); create a new Verification"
            )
        file.write(piece)
    return copied
