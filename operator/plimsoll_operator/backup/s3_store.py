"""Backups in a bucket of an S3 server: four requests of its API, signed by AWS Signature Version 4.

A library for all of S3 would be the largest dependency of the operator. Each request is sent once,
with a time limit and a bounded answer; redirects are not followed, and the environment's proxies
are not used. No message contains a credential. Source: Amazon S3 API Reference, "Authenticating
Requests: Using the Authorization Header".
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import html
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit

import aiohttp

from plimsoll_net.client_trust import BadAuthority, client_context
from plimsoll_operator.api.evidence import S3
from plimsoll_operator.backup.backup_stores import NAMES_MAX, StoredName, StoreUnavailable

CONNECT_S, REQUEST_S = 5.0, 60.0
ANSWER_BYTES_MAX = 8 * 1024 * 1024
REGION_DEFAULT = "us-east-1"
ACCESS_KEY, SECRET_KEY, SESSION_TOKEN = (
    "AWS_ACCESS_KEY_ID",
    "AWS_SECRET_ACCESS_KEY",
    "AWS_SESSION_TOKEN",
)
AUTHORITY = "ca.crt"
_PRINTED = re.compile(r"[!-~]*")
ENTRIES_MAX = 1_000
"""Most entries of a page, by the API."""
# A key has at most 1,024 bytes before XML escapes it.
_KEY = re.compile(rb"<Key>([^<]{1,4096})</Key>")
_SIZE = re.compile(rb"<Size>(\d{1,15})</Size>")
_CODE = re.compile(rb"<Code>([A-Za-z0-9.]{1,64})</Code>")


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Credentials for a bucket, and the authorities that its server's certificate must be of."""

    access_key: str
    secret_key: str
    session_token: str = ""
    authority: str = ""


def login_of(secret: Mapping[str, str]) -> Login:
    """Return the login in the content of a Secret. Raise ValueError with a part of a sentence if
    it lacks a key, or if a part that is sent does not fit into a header."""
    for key in (ACCESS_KEY, SECRET_KEY):
        if not secret.get(key, "").strip():
            raise ValueError(f"the Secret has no key {key}")
    for key in (ACCESS_KEY, SESSION_TOKEN):
        if not _PRINTED.fullmatch(secret.get(key, "").strip()):
            raise ValueError(
                f"the Secret's {key} has a space, a line break or another character that is not "
                "allowed"
            )
    return Login(
        access_key=secret[ACCESS_KEY].strip(),
        secret_key=secret[SECRET_KEY].strip(),
        session_token=secret.get(SESSION_TOKEN, "").strip(),
        authority=secret.get(AUTHORITY, ""),
    )


def bucket(
    now_ms: Callable[[], int], wanted: S3, directory: str, secret: Mapping[str, str]
) -> S3Store:
    """Return the store for `directory` in the bucket that a LogCluster declares. Raises
    ValueError."""
    return S3Store(wanted, directory, login_of(secret), now_ms)


class S3Store:
    """`BackupStore` over the objects of a bucket below `<prefix>/<directory>/`. Raises ValueError
    if the login's authorities are no certificates."""

    def __init__(self, wanted: S3, directory: str, login: Login, now_ms: Callable[[], int]) -> None:
        self._login = login
        self._now_ms = now_ms
        self._region = wanted.region or REGION_DEFAULT
        self._endpoint = wanted.endpoint or f"https://s3.{self._region}.amazonaws.com"
        self._bucket = wanted.bucket
        prefix = (wanted.prefix or "").strip("/")
        self._prefix = "/".join(part for part in (prefix, directory) if part) + "/"
        if {"", ".", ".."} & set(self._prefix[:-1].split("/")):
            raise ValueError(
                f'the prefix {prefix} of the bucket has a part that is empty, "." or ".."'
            )
        try:
            self._trust = client_context(login.authority)
        except BadAuthority as error:
            raise ValueError(f"the Secret's {AUTHORITY} cannot be used: {error}") from error
        self._session: aiohttp.ClientSession | None = None

    @property
    def place(self) -> str:
        return f"s3://{self._bucket}/{self._prefix}".rstrip("/")

    async def stored(self) -> list[StoredName]:
        found: list[StoredName] = []
        after = ""
        while len(found) <= NAMES_MAX:
            query = {"list-type": "2", "prefix": self._prefix}
            if after:
                query["start-after"] = after
            body = await self._send("GET", "", query=query)
            try:
                page = await asyncio.to_thread(entries, body)
            except ValueError as error:
                raise StoreUnavailable(f"{self.place}: {error}") from None
            last = max((key for key, _ in page), default="")
            if last <= after:
                return found
            found += [
                StoredName(key.removeprefix(self._prefix), size)
                for key, size in page
                if key.startswith(self._prefix)
            ]
            after = last
            if b"<IsTruncated>true</IsTruncated>" not in body:
                return found
        raise StoreUnavailable(
            f"the backup place {self.place} has more than {NAMES_MAX} objects; delete those "
            "that are not of the backup, or give the backup a prefix of its own"
        )

    async def write(self, name: str, data: bytes) -> None:
        await self._send("PUT", self._prefix + name, data=data)

    async def read(self, name: str, bytes_max: int) -> bytes:
        return await self._send("GET", self._prefix + name, bytes_max=bytes_max)

    async def delete(self, name: str) -> None:
        await self._send("DELETE", self._prefix + name)

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None

    async def _send(
        self,
        method: str,
        key: str,
        *,
        query: Mapping[str, str] | None = None,
        data: bytes = b"",
        bytes_max: int = ANSWER_BYTES_MAX,
    ) -> bytes:
        path = quote(f"/{self._bucket}/{key}" if key else f"/{self._bucket}", safe="/-_.~")
        words = canonical_query(query or {})
        url = f"{self._endpoint.rstrip('/')}{path}" + (f"?{words}" if words else "")
        digest = await asyncio.to_thread(lambda: hashlib.sha256(data).hexdigest())
        headers = self._signed(method, path, words, digest)
        try:
            async with self._connected().request(
                method,
                url,
                headers=headers,
                data=data or None,
                allow_redirects=False,
            ) as answer:
                body = await _bounded(answer, bytes_max)
                status = answer.status
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
            raise StoreUnavailable(
                f"the bucket's server does not answer for {self.place}: "
                f"{error or type(error).__name__}"
            ) from None
        if status // 100 != 2:
            code = _CODE.search(body)
            said = code[1].decode() if code else "no reason"
            raise StoreUnavailable(
                f"the bucket's server answered {method} for {self.place} with status {status} "
                f"({said})"
            )
        return body

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(limit=2, ssl=self._trust),
                timeout=aiohttp.ClientTimeout(total=REQUEST_S, sock_connect=CONNECT_S),
                trust_env=False,
                auto_decompress=False,
            )
        return self._session

    def _signed(self, method: str, path: str, query: str, digest: str) -> dict[str, str]:
        at = datetime.fromtimestamp(self._now_ms() / 1000, UTC)
        headers = {
            "host": urlsplit(self._endpoint).netloc,
            "x-amz-content-sha256": digest,
            "x-amz-date": at.strftime("%Y%m%dT%H%M%SZ"),
        }
        if self._login.session_token:
            headers["x-amz-security-token"] = self._login.session_token
        request = SignedRequest(method=method, path=path, query=query, headers=headers)
        return headers | {"authorization": request.authorization(self._login, self._region)}


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedRequest:
    """A request to sign. `path` and `query` are encoded; `headers`, with lower-case names, have
    x-amz-date and x-amz-content-sha256; all of them are signed."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str]

    def authorization(self, login: Login, region: str) -> str:
        """Return the value of the header `Authorization`."""
        names = ";".join(sorted(self.headers))
        lines = "".join(f"{name}:{self.headers[name]}\n" for name in sorted(self.headers))
        payload = self.headers["x-amz-content-sha256"]
        canonical = "\n".join((self.method, self.path, self.query, lines, names, payload))
        at = self.headers["x-amz-date"]
        scope = f"{at[:8]}/{region}/s3/aws4_request"
        digest = hashlib.sha256(canonical.encode()).hexdigest()
        key = f"AWS4{login.secret_key}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        text = f"AWS4-HMAC-SHA256\n{at}\n{scope}\n{digest}"
        signature = hmac.new(key, text.encode(), "sha256").hexdigest()
        return (
            f"AWS4-HMAC-SHA256 Credential={login.access_key}/{scope}, SignedHeaders={names}, "
            f"Signature={signature}"
        )


def canonical_query(query: Mapping[str, str]) -> str:
    """Return a query as it is signed and sent: sorted, and everything but letters, digits and
    `-_.~` encoded."""
    return "&".join(
        f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}"
        for name, value in sorted(query.items())
    )


async def _bounded(answer: aiohttp.ClientResponse, bytes_max: int) -> bytes:
    """Return the first `bytes_max` bytes of an answer. One that is longer ends its connection."""
    body = bytearray()
    async for piece in answer.content.iter_chunked(256 * 1024):
        body += piece
        if len(body) >= bytes_max:
            answer.close()
            break
    return bytes(body[:bytes_max])


def entries(body: bytes) -> list[tuple[str, int]]:
    """Return the keys and sizes in a page of a list, in time linear in its length. Raise ValueError
    with a part of a sentence if the API allows no such page."""
    parts = body.split(b"<Contents>", ENTRIES_MAX + 1)[1:]
    if len(parts) > ENTRIES_MAX:
        raise ValueError(
            f"a page of the bucket's list of objects has more than {ENTRIES_MAX} entries"
        )
    found = []
    for part in parts:
        entry, end, _ = part.partition(b"</Contents>")
        if not end:
            raise ValueError("the bucket's list of objects is malformed: an entry has no end")
        found.append(_entry(entry))
    return found


def _entry(part: bytes) -> tuple[str, int]:
    key, size = _KEY.search(part), _SIZE.search(part)
    name = html.unescape(key[1].decode(errors="replace")) if key else ""
    return name, int(size[1]) if size else 0
