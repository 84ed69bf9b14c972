"""Decides access to the operator's HTTP view: the API server reviews each token.

A token must be for the audience `plimsoll.dev/view` and no other, so that nobody sends a token for
the API server itself, which could do far more. Its bearer (TokenReview) must be allowed to get
`logclusters/view` of that cluster (SubjectAccessReview). The origin of a request proves nothing,
not even the API server's pod proxy, since every pod reaches this port.

False tokens cannot crowd out valid ones: few tokens of one address are reviewed at a time, refused
tokens are cached apart from accepted ones, and recently accepted tokens have reviews of their own.
Source: docs/design/014-operators-view.md.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from plimsoll_operator.api import GROUP, labels
from plimsoll_operator.kube.errors import ApiError
from plimsoll_operator.kube.kube_api import KubeApi
from plimsoll_operator.kube.resources import SUBJECT_REVIEWS, TOKEN_REVIEWS
from plimsoll_operator.kube.seen_objects import Key

TOKEN_BYTES_MAX = 16 * 1024
REMEMBERED_MAX = 256
REMEMBERED_MS = 10_000
REVIEWS_AT_ONCE = 4
WAITING_MAX = 32
OF_SOURCE_MAX = 8
"""Bound on the requests from one address that wait for a review."""
FIRST_MAX = 128
"""Bound on all waiting requests that still admits a request from an address of which none waits. It
is higher than `WAITING_MAX`, so that other addresses cannot exclude a new one."""
KNOWN_MAX = 64
"""Bound on the number of remembered tokens that were accepted recently. When the cached result of
such a token has expired, it is reviewed in a queue for known tokens."""
KNOWN_MS = 600_000
"""For how many milliseconds an accepted token is remembered as known: the lifetime of a token that
`kubectl plimsoll` requests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Denied:
    """The refusal of a request: the HTTP status and a sentence with the reason."""

    status: int
    message: str


NO_TOKEN = Denied(
    status=401,
    message="The request has no bearer token. Create one: `kubectl create token SERVICEACCOUNT "
    f"--audience {labels.VIEW_AUDIENCE}`, and send it as `Authorization: Bearer TOKEN`, or, if a "
    f"proxy removes that header, as `{labels.VIEW_HEADER}: Bearer TOKEN`.",
)
BUSY = Denied(
    status=503,
    message=(
        "The request was not answered: the operator is checking too many other tokens. Retry."
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verdict:
    """The cached result of a review. `denied`: None if access is allowed; `until_ms`: when it
    expires, on the monotonic clock."""

    denied: Denied | None
    until_ms: int


_Asked = tuple[bytes, Key]


class ViewAccess:
    """Reviews the tokens of requests for the view, and caches the results for seconds. Used on the
    event loop only."""

    def __init__(self, kube: KubeApi, monotonic_ms: Callable[[], int]) -> None:
        self._kube = kube
        self._monotonic_ms = monotonic_ms
        # Verdicts by token (its hash) and cluster, kept for some seconds: accepted and refused.
        self._let_in: dict[_Asked, _Verdict] = {}
        self._refused: dict[_Asked, _Verdict] = {}
        # Accepted tokens, with the time at which each is forgotten.
        self._known: dict[_Asked, int] = {}
        self._reviews = asyncio.Semaphore(REVIEWS_AT_ONCE)
        self._known_reviews = asyncio.Semaphore(1)
        self._known_waiting = 0
        # Waiting reviews of unknown tokens, by source address.
        self._waiting: Counter[str] = Counter()

    async def check(self, headers: Any, key: Key, source: str = "") -> Denied | None:
        """Return None if the request's token allows reading the view of the LogCluster `key`, else
        the denial: 401 for a missing or invalid token, 403 if its bearer may not, 503 if the API
        server or the queue of reviews is too busy. The API server reviews a token without a cached
        result. `headers`: those of the request; `source`: the address of its sender, which may be a
        proxy."""
        token = bearer(headers)
        if token is None:
            return NO_TOKEN
        asked = hashlib.sha256(token.encode()).digest(), key
        found = self._remembered(asked)
        if found is not None:
            return found.denied
        try:
            known = self._known.get(asked, 0) > self._monotonic_ms()
            if self._is_full(source, known):
                return BUSY
            if known:
                return await self._reviewed_again(asked, token)
            return await self._reviewed_for(source, asked, token)
        except ApiError as error:
            # Not cached: the next request may succeed.
            return Denied(
                status=503, message=f"The API server cannot review tokens: {error.reply}."
            )

    def _remembered(self, asked: _Asked) -> _Verdict | None:
        found = self._let_in.get(asked) or self._refused.get(asked)
        return found if found is not None and found.until_ms > self._monotonic_ms() else None

    def _is_full(self, source: str, known: bool) -> bool:
        if known:
            return self._known_waiting >= WAITING_MAX
        own, all_of_them = self._waiting[source], self._waiting.total()
        if own == 0:
            return all_of_them >= FIRST_MAX
        return own >= OF_SOURCE_MAX or all_of_them >= WAITING_MAX

    async def _reviewed_again(self, asked: _Asked, token: str) -> Denied | None:
        self._known_waiting += 1
        try:
            async with self._known_reviews:
                return await self._verdict(asked, token)
        finally:
            self._known_waiting -= 1

    async def _reviewed_for(self, source: str, asked: _Asked, token: str) -> Denied | None:
        self._waiting[source] += 1
        try:
            async with self._reviews:
                return await self._verdict(asked, token)
        finally:
            self._waiting[source] -= 1
            if not self._waiting[source]:
                del self._waiting[source]

    async def _verdict(self, asked: _Asked, token: str) -> Denied | None:
        """Return the cached result, which another request may have produced while this one waited,
        or else review the token and cache the result. None: access is allowed. Raises ApiError,
        which is not cached."""
        found = self._remembered(asked)
        if found is not None:
            return found.denied
        denied = await self._review(token, asked[1])
        self._remember(asked, denied)
        return denied

    def _remember(self, asked: _Asked, denied: Denied | None) -> None:
        now_ms = self._monotonic_ms()
        for verdicts in (self._let_in, self._refused):
            verdicts.pop(asked, None)
        self._known.pop(asked, None)
        if denied is None:
            _make_room(self._known, KNOWN_MAX)
            self._known[asked] = now_ms + KNOWN_MS
        verdicts = self._let_in if denied is None else self._refused
        _make_room(verdicts, REMEMBERED_MAX)
        verdicts[asked] = _Verdict(denied=denied, until_ms=now_ms + REMEMBERED_MS)

    async def _review(self, token: str, key: Key) -> Denied | None:
        spec = {"token": token, "audiences": [labels.VIEW_AUDIENCE]}
        found = await self._ask(TOKEN_REVIEWS, spec)
        audiences = found.get("audiences") or ()
        if not found.get("authenticated") or labels.VIEW_AUDIENCE not in audiences:
            text = (
                "The API server does not accept this token. Create a new one: `kubectl create "
                f"token SERVICEACCOUNT --audience {labels.VIEW_AUDIENCE}`"
            )
            return Denied(status=401, message=text)
        user = found.get("user") or {}
        namespace, name = key
        attributes = {
            "group": GROUP,
            "resource": "logclusters",
            "subresource": "view",
            "verb": "get",
            "namespace": namespace,
            "name": name,
        }
        who = {part: user[part] for part in ("uid", "groups", "extra") if user.get(part)}
        subject = {"user": user.get("username", ""), **who, "resourceAttributes": attributes}
        answer = await self._ask(SUBJECT_REVIEWS, subject)
        if answer.get("allowed") is True and not answer.get("denied"):
            return None
        text = (
            f"{user.get('username')} has no right to get logclusters/view of LogCluster "
            f"{namespace}/{name}. Bind {user.get('username')} to a Role that allows that."
        )
        return Denied(status=403, message=text)

    async def _ask(self, kind: Any, spec: dict[str, Any]) -> dict[str, Any]:
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "spec": spec}
        answer = await self._kube.create(kind, {**body, "metadata": {}})
        return dict(answer.get("status") or {})


def _make_room(table: dict[_Asked, Any], size: int) -> None:
    """Remove the oldest entries of the table until it has fewer than `size`."""
    while len(table) >= size:
        del table[next(iter(table))]


def bearer(headers: Any) -> str | None:
    """Return the bearer token in a request's headers, or None if there is none, or it is not ASCII
    or longer than `TOKEN_BYTES_MAX`. The product's own header takes precedence over
    `Authorization`, since no proxy sets it."""
    for name in (labels.VIEW_HEADER, "Authorization"):
        scheme, _, token = headers.get(name, "").partition(" ")
        token = token.strip()
        # Bytes that are not UTF-8 arrive as lone surrogates, which cannot be encoded.
        if scheme.lower() == "bearer" and token.isascii() and 0 < len(token) <= TOKEN_BYTES_MAX:
            return str(token)
    return None
