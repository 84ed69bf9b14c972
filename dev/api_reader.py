"""A client of the Kubernetes API with persistent connections. It does what `kubectl get -o json`
and `kubectl apply --server-side` do, with a hundredth of their processor time. Called by `Cluster`
in dev/kubectl.py. Besides applied objects it writes only namespaces, and it requests a token only
for the operator's view.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from typing import Any

from kubernetes import config
from kubernetes.client.rest import RESTResponse
from urllib3.exceptions import HTTPError

ALL_GROUPS = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
NOT_FOUND = 404
DENIED = (401, 403)
DISCOVERY_S = 20.0
VIEW_AUDIENCE = "plimsoll.dev/view"
VIEW_HEADER = "X-Plimsoll-Authorization"
APPLY = "application/apply-patch+yaml"
APPLIER = "fieldManager=plimsoll-dev&force=true&fieldValidation=Strict"
TOKEN_S = 600
TOKEN_SPARE_S = 100
READ_SPARE_S = 10


class ReadFailed(RuntimeError):
    """Raised if the API server did not answer as expected; the message is the API server's.
    `status`: the HTTP status, 0 without an answer; `body`: the body of the answer."""

    def __init__(self, said: str, status: int = 0, body: str = "") -> None:
        super().__init__(said)
        self.status = status
        self.body = body


def _sentence(failed: ReadFailed) -> str:
    """Return the message of the Status object with which the API server answered."""
    try:
        return str(json.loads(failed.body)["message"])
    except (ValueError, KeyError, TypeError):
        return str(failed)


class ApiReader:
    """Connections to the API server of the kubeconfig's current context. Several threads may share
    it."""

    def __init__(self, kubeconfig: str | None) -> None:
        self._client = config.new_client_from_config(kubeconfig)
        # Path and whether it has namespaces, by a resource's plural, singular and short names.
        self._resources: dict[str, tuple[str, bool]] = {}
        self._discovering = threading.Lock()
        # The headers that open the operator's view, by the namespace of its account; until when.
        self._view_headers: dict[str, tuple[dict[str, str], float]] = {}

    def get(
        self,
        path: str,
        timeout_s: float,
        accept: str = "application/json",
        headers: dict[str, str] | None = None,
    ) -> str | None:
        """Return the body of the response to a GET, or None if the object does not exist (404)."""
        return self._send("GET", path, timeout_s, {"Accept": accept, **(headers or {})})

    def changes(self, path: str, name: str, seen: str, timeout_s: int) -> Iterator[dict[str, Any]]:
        """Yield each version of the object `name` in the collection `path` after resourceVersion
        `seen`, for at most `timeout_s` seconds. If `seen` is empty, begin with the present
        version."""
        query = f"watch=1&fieldSelector=metadata.name%3D{name}&timeoutSeconds={timeout_s}"
        path = f"{path}?{query}" + (f"&resourceVersion={seen}" if seen else "")
        reply = self._call("GET", path, timeout_s + READ_SPARE_S, {"Accept": "application/json"})
        try:
            with reply.response as lines:
                for line in lines:
                    yield json.loads(line)["object"]
        except HTTPError as error:
            raise ReadFailed(f"{path}: {error}") from error

    def make_namespace(self, name: str, labels: dict[str, str], timeout_s: float) -> None:
        """Create a namespace with these labels. Raises ReadFailed if it exists."""
        meta = {"name": name, "labels": labels}
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": meta}
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        self._send("POST", "/api/v1/namespaces", timeout_s, headers, body)

    def delete_namespace(self, name: str, timeout_s: float) -> None:
        """Request the deletion of a namespace, without waiting for its end. Do nothing if it does
        not exist."""
        headers = {"Accept": "application/json"}
        self._send("DELETE", f"/api/v1/namespaces/{name}", timeout_s, headers)

    def apply(self, body: dict[str, Any], namespace: str, timeout_s: float) -> None:
        """Create or update an object by server-side apply. Fields that an earlier apply stated and
        `body` lacks are removed. Raises ReadFailed with the API server's message if it refuses."""
        path = f"{self.path_of(body['kind'].lower(), namespace)}/{body['metadata']['name']}"
        version = body["apiVersion"]
        assert path.startswith(f"/apis/{version}/" if "/" in version else f"/api/{version}/"), path
        headers = {"Accept": "application/json", "Content-Type": APPLY}
        try:
            said = self._send("PATCH", f"{path}?{APPLIER}", timeout_s, headers, body)
        except ReadFailed as failed:
            raise ReadFailed(_sentence(failed), failed.status) from failed
        if said is None:
            raise ReadFailed(f"{path}: there is no such place", NOT_FOUND)

    def view(self, path: str, namespace: str, timeout_s: float) -> str | None:
        """Return the body at a path of the operator's HTTP view, read through the API server's
        proxy, or None if it does not exist. A token is requested for it if the installed release
        has an account for the view (since 0.2)."""
        known, until = self._view_headers.get(namespace, ({}, 0.0))
        if until < time.monotonic():
            token = self._view_token(namespace, timeout_s)
            known = {} if token is None else {VIEW_HEADER: f"Bearer {token}"}
            # Without an account too: a release that wants a token says so.
            until = time.monotonic() + TOKEN_S - TOKEN_SPARE_S
            self._view_headers[namespace] = known, until
        try:
            return self.get(path, timeout_s, headers=known)
        except ReadFailed as failed:
            # Its account may have been recreated since, with another release.
            if failed.status in DENIED:
                self._view_headers.pop(namespace, None)
            raise

    def _view_token(self, namespace: str, timeout_s: float) -> str | None:
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/plimsoll-view/token"
        spec = {"audiences": [VIEW_AUDIENCE], "expirationSeconds": TOKEN_S}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        headers = {"Accept": "application/json", "Content-Type": "application/json"}
        said = self._send("POST", path, timeout_s, headers, body)
        return None if said is None else str(json.loads(said)["status"]["token"])

    def _send(
        self,
        method: str,
        path: str,
        timeout_s: float,
        headers: dict[str, str],
        body: dict[str, Any] | None = None,
    ) -> str | None:
        """Send a request. Return the body of the answer, or None for the status 404."""
        try:
            reply = self._call(method, path, timeout_s, headers, body)
            return str(reply.read().decode())
        except HTTPError as error:
            raise ReadFailed(f"{path}: {error}") from error
        except ReadFailed as failed:
            if failed.status == NOT_FOUND:
                return None
            raise

    def _call(
        self,
        method: str,
        path: str,
        timeout_s: float,
        headers: dict[str, str],
        body: dict[str, Any] | None = None,
    ) -> RESTResponse:
        """Send a request and return the response, of which the body has not been read. Raises
        ReadFailed if the API server refuses."""
        call = self._client.param_serialize(
            method, path, header_params=headers, body=body, auth_settings=["BearerToken"]
        )
        try:
            reply = self._client.call_api(*call, _request_timeout=timeout_s)
            refusal = reply.read().decode() if reply.status >= 300 else None
        except HTTPError as error:
            raise ReadFailed(f"{path}: {error}") from error
        if refusal is not None:
            raise ReadFailed(f"{path}: {reply.status} {refusal}", reply.status, refusal)
        return reply

    def path_of(self, kind: str, namespace: str) -> str:
        """Return the URL path of a kind's collection in a namespace. `kind`: a name as kubectl
        accepts it."""
        with self._discovering:
            # CRDs may have come since.
            if kind not in self._resources:
                self._discover()
            if kind not in self._resources:
                raise ReadFailed(f"the server has no resource {kind!r}")
            path, namespaced = self._resources[kind]
        prefix, _, plural = path.rpartition("/")
        return f"{prefix}/namespaces/{namespace}/{plural}" if namespaced else path

    def _discover(self) -> None:
        for root in ("/apis", "/api"):
            groups = json.loads(self.get(root, DISCOVERY_S, ALL_GROUPS) or '{"items": []}')
            for group in groups["items"]:
                name, version = group["metadata"].get("name"), group["versions"][0]
                prefix = "/".join(part for part in (root, name, version["version"]) if part)
                for one in version.get("resources", ()):
                    self._add(one, name, prefix)

    def _add(self, resource: dict[str, Any], group: str | None, prefix: str) -> None:
        plural = resource["resource"]
        found = f"{prefix}/{plural}", resource["scope"] == "Namespaced"
        names = [plural, resource.get("singularResource") or plural, f"{plural}.{group}"]
        for name in (*names, *resource.get("shortNames", ())):
            # Built-in groups come last, and are meant where a name is used twice.
            self._resources[name] = found
