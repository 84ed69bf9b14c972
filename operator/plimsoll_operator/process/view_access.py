"""Who may read the operator's HTTP view: the API server says, for each token.

A token for the audience `plimsoll.dev/view`, and for no other: one for the API server itself, which
could do far more, is never wanted here.  Its bearer (TokenReview) must be allowed to get
`logclusters/view` of that cluster (SubjectAccessReview).  Nothing is believed because of where a
request comes from: the API server's pod proxy is no proof, since every pod reaches this port too.
Source: docs/design/20261124-the-operators-view.md.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from plimsoll_operator.api import GROUP, labels
from plimsoll_operator.kube.errors import ApiError
from plimsoll_operator.kube.port import KubeApi
from plimsoll_operator.kube.resources import SUBJECT_REVIEWS, TOKEN_REVIEWS
from plimsoll_operator.kube.seen_objects import Key

TOKEN_BYTES_MAX = 16 * 1024
REMEMBERED_MAX = 256
REMEMBERED_MS = 10_000
REVIEWS_AT_ONCE = 4
WAITING_MAX = 32


@dataclass(frozen=True, slots=True, kw_only=True)
class Denied:
    """Why a request is not answered, as HTTP's status and a sentence."""

    status: int
    message: str


NO_TOKEN = Denied(
    status=401,
    message=f"Send a token for the audience {labels.VIEW_AUDIENCE} as `Authorization: Bearer …`,"
    f" or, where a proxy takes that away, as `{labels.VIEW_HEADER}: Bearer …`.",
)
BUSY = Denied(status=503, message="Too many tokens are being reviewed; ask again.")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verdict:
    denied: Denied | None
    until_ms: int


class ViewAccess:
    """Single owner: the process's event loop."""

    def __init__(self, kube: KubeApi, monotonic_ms: Callable[[], int]) -> None:
        self._kube = kube
        self._monotonic_ms = monotonic_ms
        # What was said of a token (by its hash) and a cluster, for some seconds.
        self._verdicts: dict[tuple[bytes, Key], _Verdict] = {}
        self._reviews = asyncio.Semaphore(REVIEWS_AT_ONCE)
        self._waiting = 0

    async def check(self, headers: Any, key: Key) -> Denied | None:
        """None: it may read what is shown of the LogCluster `key`.  `headers`: the request's."""
        token = bearer(headers)
        if token is None:
            return NO_TOKEN
        asked = hashlib.sha256(token.encode()).digest(), key
        known = self._verdicts.get(asked)
        if known is not None and known.until_ms > self._monotonic_ms():
            return known.denied
        if self._waiting >= WAITING_MAX:
            return BUSY
        self._waiting += 1
        try:
            async with self._reviews:
                denied = await self._review(token, key)
        except ApiError as error:
            # Not remembered: the next one may be answered.
            return Denied(status=503, message=f"The API server reviews no token: {error.reply}.")
        finally:
            self._waiting -= 1
        if len(self._verdicts) >= REMEMBERED_MAX:
            self._verdicts.clear()
        until_ms = self._monotonic_ms() + REMEMBERED_MS
        self._verdicts[asked] = _Verdict(denied=denied, until_ms=until_ms)
        return denied

    async def _review(self, token: str, key: Key) -> Denied | None:
        spec = {"token": token, "audiences": [labels.VIEW_AUDIENCE]}
        found = await self._ask(TOKEN_REVIEWS, spec)
        audiences = found.get("audiences") or ()
        if not found.get("authenticated") or labels.VIEW_AUDIENCE not in audiences:
            return Denied(status=401, message="The API server does not accept this token.")
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
        text = f"{user.get('username')} may not get logclusters/view of {namespace}/{name}."
        return Denied(status=403, message=text)

    async def _ask(self, kind: Any, spec: dict[str, Any]) -> dict[str, Any]:
        body = {"apiVersion": kind.api_version, "kind": kind.kind, "spec": spec}
        answer = await self._kube.create(kind, {**body, "metadata": {}})
        return dict(answer.get("status") or {})


def bearer(headers: Any) -> str | None:
    """The token of a request; the header of our own first, since it is never a proxy's."""
    for name in (labels.VIEW_HEADER, "Authorization"):
        scheme, _, token = headers.get(name, "").partition(" ")
        token = token.strip()
        # Bytes that are no UTF-8 come as lone surrogates, which nothing takes.
        if scheme.lower() == "bearer" and token.isascii() and 0 < len(token) <= TOKEN_BYTES_MAX:
            return str(token)
    return None
