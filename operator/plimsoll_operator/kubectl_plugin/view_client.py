"""Reads the operator's HTTP view, through the API server.

The API server's pod proxy forwards a request to the operator's pod and removes `Authorization`, so
the token for the view has a header of its own. The API server issues this token for the chart's
ServiceAccount `…-view`; the token is valid for ten minutes and for this view only. The user's own
credentials are sent to the API server alone. Source: docs/design/014-operators-view.md.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol

import msgspec

from plimsoll_operator.api import labels
from plimsoll_operator.kube.errors import ApiError, answered
from plimsoll_operator.kube.kube_api import HttpRequest, HttpResponse, KubeApi, Object, Transport
from plimsoll_operator.kube.resources import PODS
from plimsoll_operator.kubectl_plugin.shown import Problem, ViewUnavailable, told

OPERATOR_NAMESPACE = "plimsoll-system"
NOT_LEADING = "NotLeading"
TOKEN_SECONDS = 600
SPARE_SECONDS = 60
OPERATORS = f"{labels.NAME}=plimsoll,{labels.COMPONENT}=operator"


class ViewClient(Protocol):
    """The operator's HTTP view of its clusters, wherever it is served."""

    async def get(self, path: str, params: Mapping[str, str]) -> Any:
        """Return the decoded JSON at `path`. Raises `ViewUnavailable` if no operator that leads the
        cluster answers, `Problem` if the operator refuses the request."""


class LocalView:
    """The view of a local cluster (`plimsoll local`), which serves it on the port of its API
    server."""

    def __init__(self, transport: Transport) -> None:
        self._transport = transport

    async def get(self, path: str, params: Mapping[str, str]) -> Any:
        try:
            answer = await self._transport.send(
                HttpRequest(method="GET", path=path, params=dict(params))
            )
        except ApiError as error:
            raise ViewUnavailable(f"The local cluster is unreachable: {told(error)}") from error
        return _content(answer)


class ProxiedView:
    """The view of an operator in pods. It asks one operator pod after the other, until one that
    leads the cluster answers."""

    def __init__(self, transport: Transport, namespace: str) -> None:
        self._transport = transport
        self._kube = KubeApi(transport)
        self._namespace = namespace
        # Tokens by ServiceAccount, and the time of their renewal.
        self._tokens: dict[str, str] = {}
        self._until = 0.0
        # The pod that answered last; it is asked first.
        self._leader = ""

    async def get(self, path: str, params: Mapping[str, str]) -> Any:
        pods = await self._pods()
        why = (
            f"no operator pod in namespace {self._namespace} (choose it with --operator-namespace)"
        )
        for pod in sorted(pods, key=lambda pod: pod["metadata"]["name"] != self._leader):
            name = pod["metadata"]["name"]
            try:
                answer = await self._ask(pod, path, params)
            except ApiError as error:
                why = f"{name}: {told(error)}".rstrip(".")
                continue
            if answer.status == 404 and _reason(answer) == NOT_LEADING:
                why = f"operator pod {name} does not lead the cluster"
                continue
            if answer.status in (401, 403, 502, 503, 504):
                why = f"{name}: {_sentence(answer)}"
                continue
            self._leader = name
            return _content(answer)
        raise ViewUnavailable(f"No operator that leads the cluster could be reached: {why}.")

    async def _pods(self) -> list[Object]:
        try:
            listed = await self._kube.list(PODS, self._namespace, label_selector=OPERATORS)
        except ApiError as error:
            text = f"Cannot list the operator's pods in {self._namespace}: {told(error)}"
            raise ViewUnavailable(text) from error
        return [pod for pod in listed.items if (pod.get("status") or {}).get("phase") == "Running"]

    async def _ask(self, pod: Object, path: str, params: Mapping[str, str]) -> HttpResponse:
        token = await self._token(pod)
        name = f"{pod['metadata']['name']}:{_port(pod)}"
        request = HttpRequest(
            method="GET",
            path=f"/api/v1/namespaces/{self._namespace}/pods/{name}/proxy{path}",
            params=dict(params),
            headers={labels.VIEW_HEADER: f"Bearer {token}"},
        )
        return await self._transport.send(request)

    async def _token(self, pod: Object) -> str:
        account = view_account(pod)
        if account not in self._tokens or self._until < time.monotonic():
            spec = {"audiences": [labels.VIEW_AUDIENCE], "expirationSeconds": TOKEN_SECONDS}
            path = f"/api/v1/namespaces/{self._namespace}/serviceaccounts/{account}/token"
            body = {
                "apiVersion": "authentication.k8s.io/v1",
                "kind": "TokenRequest",
                "metadata": {},
                "spec": spec,
            }
            request = HttpRequest(method="POST", path=path, body=msgspec.json.encode(body))
            answer = await self._transport.send(request)
            if answer.status not in (200, 201):
                raise answered("POST", path, answer.status, answer.body)
            self._tokens = {account: msgspec.json.decode(answer.body)["status"]["token"]}
            self._until = time.monotonic() + TOKEN_SECONDS - SPARE_SECONDS
        return self._tokens[account]


async def view_of(transport: Transport, operator_namespace: str) -> ViewClient:
    """Return a client for the view of the operator that works with this API server, which may be
    that of a local cluster. Raises `Problem` if the API server is unreachable."""
    try:
        local = await _serves_views(transport)
    except ApiError as error:
        raise Problem(f"The API server is unreachable: {told(error)}") from error
    return LocalView(transport) if local else ProxiedView(transport, operator_namespace)


async def _serves_views(transport: Transport) -> bool:
    """Return True if the API server serves the view itself, as that of `plimsoll local` does."""
    answer = await transport.send(HttpRequest(method="GET", path="/v1/clusters"))
    if answer.status != 200:
        return False
    try:
        return "clusters" in msgspec.json.decode(answer.body, type=dict[str, Any])
    except msgspec.MsgspecError:
        return False


def view_account(pod: Object) -> str:
    """Return the name of the ServiceAccount that the chart creates for the view: that of the
    Deployment which owns the operator's pod, and `-view`."""
    owners = pod["metadata"].get("ownerReferences") or [{"name": ""}]
    deployment = str(owners[0]["name"]).rpartition("-")[0] or "plimsoll"
    return f"{deployment}-view"


def _port(pod: Object) -> int:
    for container in pod["spec"]["containers"]:
        for port in container.get("ports") or ():
            if port.get("name") == "metrics":
                return int(port["containerPort"])
    return labels.METRICS_PORT


def _reason(answer: HttpResponse) -> str:
    try:
        found = msgspec.json.decode(answer.body)
    except msgspec.MsgspecError:
        return ""
    return str(found.get("reason", "")) if isinstance(found, dict) else ""


def _sentence(answer: HttpResponse) -> str:
    """Return the error message in an answer of the view, or of the API server that proxies it,
    without the final full stop."""
    try:
        found = msgspec.json.decode(answer.body)
    except msgspec.MsgspecError:
        return answer.body[:200].decode(errors="replace").strip() or f"status {answer.status}"
    if isinstance(found, dict) and (text := found.get("error") or found.get("message")):
        return str(text).rstrip(".")
    return f"status {answer.status}"


def _content(answer: HttpResponse) -> Any:
    if answer.status == 404 and _reason(answer) == NOT_LEADING:
        raise ViewUnavailable(f"{_sentence(answer)}.")
    if answer.status != 200:
        raise Problem(f"{_sentence(answer)}.")
    try:
        return msgspec.json.decode(answer.body)
    except msgspec.MsgspecError as error:
        raise Problem(
            f"The operator's answer cannot be read: {error}. Use the kubectl plugin of the "
            "operator's release."
        ) from error
