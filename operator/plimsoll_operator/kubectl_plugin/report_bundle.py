"""`report`: writes one archive for a bug report, without secrets.

Every file is chosen by name; Secrets are never read. Objects lose their managed fields, the
annotation of `kubectl apply`, and the values of all fields with a name that suggests a
secret. The archive has no logs of containers and no records of topics.
"""

from __future__ import annotations

import io
import json
import os
import re
import tarfile
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import yaml

from plimsoll_operator.api import labels
from plimsoll_operator.kube.errors import ApiError
from plimsoll_operator.kube.kube_api import HttpRequest, Object
from plimsoll_operator.kube.resources import (
    CORE_EVENTS,
    LOG_CLUSTERS,
    PODS,
    STATEFUL_SETS,
    USER_KINDS,
    VOLUME_CLAIMS,
    Kind,
)
from plimsoll_operator.kubectl_plugin import timeline
from plimsoll_operator.kubectl_plugin.session import PluginSession
from plimsoll_operator.kubectl_plugin.shown import Findings, Problem, line, told
from plimsoll_operator.shipped_files import installed_version

HIDDEN = "(left out)"
ROWS_MAX = 20_000
"""Bound on the changes of the history in the archive; the newest are kept."""
_SECRET = re.compile(
    r"passw|secret|token|credential|jaas|private|keystore|truststore|api.?key", re.IGNORECASE
)
_NOT_SECRET = frozenset(
    {"imagePullSecrets", "automountServiceAccountToken", "secretName", "tokenExpirationSeconds"}
)
_VIEWS = ("", "/brokers", "/topics")


class ReportFile(NamedTuple):
    """One file of the archive."""

    name: str
    content: bytes


async def bundle(session: PluginSession, path: Path) -> Findings:
    """Write the archive to `path`, readable by its owner alone, and list its files. Data that could
    not be read is listed, and is no error. Raises `Problem` if the archive cannot be written, or
    `path` exists."""
    missing: list[str] = []
    files = [file async for file in _files(session, missing)]
    if missing:
        files.append(ReportFile("missing.txt", "".join(f"{one}\n" for one in missing).encode()))
    try:
        _write(path, files)
    except OSError as error:
        raise Problem(f"Cannot write {path}: {error.strerror}.") from error
    names = [file.name for file in files]
    text = f"Wrote {path} ({len(files)} files). Review them before you send them anywhere."
    parts = [line(text), *(line(f"  {name}") for name in names)]
    parts += [
        line(f"Missing in the report, because it could not be read: {one}") for one in missing
    ]
    return Findings(data={"path": str(path), "files": names, "missing": missing}, parts=parts)


async def _files(session: PluginSession, missing: list[str]) -> AsyncIterator[ReportFile]:
    yield ReportFile("versions.json", _json(await _versions(session)))
    for view in _VIEWS:
        name = f"view{view.replace('/', '-') or '-cluster'}.json"
        try:
            yield ReportFile(name, _json(await session.see(view)))
        except Problem as error:
            missing.append(f"{name}: {error}")
    try:
        archived = await timeline.read(session)
        rows = archived.rows[-ROWS_MAX:]
        yield ReportFile("history.jsonl", b"\n".join(msgspec.json.encode(row) for row in rows))
        missing += archived.notes
    except Problem as error:
        missing.append(f"history: {error}")
    for kind in (*USER_KINDS, STATEFUL_SETS, PODS, VOLUME_CLAIMS, CORE_EVENTS):
        try:
            found = [_cleaned(kind, body) for body in await session.objects(kind)]
        except Problem as error:
            missing.append(str(error))
            continue
        yield ReportFile(f"objects/{kind.plural}.yaml", _yaml(found))


async def _versions(session: PluginSession) -> Object:
    try:
        answer = await session.transport.send(HttpRequest(method="GET", path="/version"))
        server = msgspec.json.decode(answer.body).get("gitVersion", "")
    except (ApiError, msgspec.MsgspecError, AttributeError) as error:
        server = told(error) if isinstance(error, ApiError) else "unknown"
    return {
        "kubectl-plimsoll": installed_version(),
        "kubernetes": server,
        "cluster": session.status.get("versions"),
    }


def _cleaned(kind: Kind, body: Object) -> Object:
    found: Object = redacted(body)
    meta = found.get("metadata") or {}
    meta.pop("managedFields", None)
    (meta.get("annotations") or {}).pop(labels.LAST_APPLIED, None)
    if kind is PODS:
        for container in _containers(found):
            container.pop("env", None)
            container.pop("args", None)
            container.pop("command", None)
    if kind is LOG_CLUSTERS:
        return found
    return {name: found[name] for name in found if name != "data"}


def _containers(body: Object) -> list[Object]:
    spec = body.get("spec") or {}
    kinds = ("containers", "initContainers", "ephemeralContainers")
    return [one for kind in kinds for one in spec.get(kind) or ()]


def redacted(value: Any) -> Any:
    """Return a copy of a JSON value without secrets: `HIDDEN` replaces each string or number in a
    field with a name that suggests a secret, and the `value` beside a `name` that does."""
    if isinstance(value, dict):
        if _names_a_secret(value.get("name")) and "value" in value:
            value = {**value, "value": HIDDEN}
        return {
            key: HIDDEN if _names_a_secret(key) and _is_value(found) else redacted(found)
            for key, found in value.items()
        }
    return [redacted(one) for one in value] if isinstance(value, list) else value


def _names_a_secret(name: Any) -> bool:
    return isinstance(name, str) and name not in _NOT_SECRET and bool(_SECRET.search(name))


def _is_value(found: Any) -> bool:
    return isinstance(found, str | bytes | int | float) and not isinstance(found, bool)


def _json(value: Any) -> bytes:
    return json.dumps(redacted(msgspec.to_builtins(value)), indent=2).encode()


def _yaml(found: list[Object]) -> bytes:
    return yaml.safe_dump_all(found, sort_keys=False, allow_unicode=True).encode()


def _write(path: Path, files: list[ReportFile]) -> None:
    root = path.name.removesuffix(".tar.gz")
    # Nobody else may open it before all is written either.
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with (
        os.fdopen(descriptor, "wb") as whole,
        tarfile.open(fileobj=whole, mode="w:gz") as archive,
    ):
        for file in files:
            entry = tarfile.TarInfo(f"{root}/{file.name}")
            entry.size, entry.mtime, entry.mode = len(file.content), int(time.time()), 0o600
            archive.addfile(entry, io.BytesIO(file.content))
