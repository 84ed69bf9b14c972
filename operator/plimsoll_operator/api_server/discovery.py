"""The discovery documents that clients request first: `/api`, `/apis`, `/version`.

`/openapi/v3` holds no schemas. Called by `serving`. Source: Kubernetes' "API Discovery", the
unaggregated documents.
"""

from __future__ import annotations

from collections.abc import Iterable

from plimsoll_operator.api_server.kinds import Resource
from plimsoll_operator.kube.kube_api import Object

VERBS = (
    "create", "delete", "deletecollection", "get", "list", "patch", "update", "watch",
)  # fmt: skip
_OPENAPI = "/openapi/v3/"
STATUS_VERBS = ("get", "patch", "update")
VERSION: Object = {"major": "1", "minor": "34", "gitVersion": "v1.34.0+plimsoll"}


def document(path: str, resources: Iterable[Resource]) -> Object | None:
    """Return the discovery document at a URL path, or None if there is none at this path.
    `resources`: the served kinds."""
    served = list(resources)
    if path == "/version":
        return VERSION
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []}
    if path == "/apis":
        return _groups(served)
    if path == "/openapi/v3":
        roots = {one.root.rpartition("/")[0].removeprefix("/") for one in served}
        return {"paths": {r: {"serverRelativeURL": f"{_OPENAPI}{r}"} for r in sorted(roots)}}
    if path.startswith(_OPENAPI):
        return _openapi("/" + path.removeprefix(_OPENAPI), served)
    root, _, version = path.removeprefix("/").partition("/")
    found = [one for one in served if one.kind.api_version == version]
    if not found or root != ("apis" if "/" in version else "api"):
        return None
    rows = [row for one in found for row in _rows(one)]
    return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": version} | {
        "resources": rows
    }


def _openapi(root: str, served: list[Resource]) -> Object:
    """Return the OpenAPI document of the API group version at the path `root`. It has no schemas;
    it only declares the parameter `fieldValidation`, so that `kubectl apply` leaves validation to
    the server."""
    parameter = {"name": "fieldValidation", "in": "query", "schema": {"type": "string"}}
    paths = {}
    for one in served:
        if one.root.rpartition("/")[0] == root:
            group, _, version = one.kind.api_version.rpartition("/")
            kind = {"group": group, "version": version, "kind": one.kind.kind}
            patch = {"parameters": [parameter], "x-kubernetes-group-version-kind": kind}
            paths[f"{one.root}/{{name}}"] = {"patch": {**patch, "responses": {}}}
    return {"openapi": "3.0.0", "info": {"title": "Plimsoll", "version": "1"}, "paths": paths}


def _groups(served: list[Resource]) -> Object:
    versions = sorted({one.kind.api_version for one in served if "/" in one.kind.api_version})
    groups: dict[str, list[Object]] = {}
    for version in versions:
        group, _, name = version.partition("/")
        groups.setdefault(group, []).append({"groupVersion": version, "version": name})
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [
            {"name": group, "versions": rows, "preferredVersion": rows[-1]}
            for group, rows in groups.items()
        ],
    }


def _rows(resource: Resource) -> list[Object]:
    kind = resource.kind
    row = {
        "name": kind.plural,
        "singularName": kind.kind.lower(),
        "namespaced": kind.namespaced,
        "kind": kind.kind,
        "verbs": VERBS,
    }
    more = {"shortNames": resource.short_names, "categories": resource.categories}
    rows = [row | {name: value for name, value in more.items() if value}]
    if resource.has_status:
        rows.append({**row, "name": f"{kind.plural}/status", "verbs": STATUS_VERBS})
    return rows
