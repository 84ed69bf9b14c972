"""Both shells of the metadata log, and what may befall each, behind one face for one test suite."""

import fcntl
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from kubernetes.aio import client
from tests.metalog.fake_api import DirectApi, Faults, HttpServer, Request, Store

from plimsoll_operator.metalog import files
from plimsoll_operator.metalog.directory import DirectoryLog
from plimsoll_operator.metalog.interface import MetadataLog, Opened
from plimsoll_operator.metalog.kube_api import Answer
from plimsoll_operator.metalog.kubernetes import KubernetesLog, Options, RingLog
from plimsoll_operator.metalog.objects import Place

SLOTS = 16
CLUSTER_ID = uuid.UUID("5f2b1c3a-9d4e-4f60-8a7b-0c1d2e3f4a5b")
PLACE = Place(namespace="default", cluster_name="demo", cluster_id=CLUSTER_ID)
FAST = Options(slots=SLOTS, attempt_timeout_ms=250, backoff_ms=1, poll_ms=5)


class Crash(BaseException):
    """The process ends here."""


class _UnlockedLog(DirectoryLog):
    """Finds the directory unlocked, whoever holds it, as on a broken network file system."""

    def __init__(self, path: Path, others: list["_UnlockedLog"]) -> None:
        super().__init__(path, CLUSTER_ID, poll_ms=5)
        self._others = others

    async def open(self) -> Opened:
        for other in self._others:
            if other._lock is not None:
                fcntl.flock(other._lock, fcntl.LOCK_UN)
        return await super().open()


class DirectoryShell:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._logs: list[_UnlockedLog] = []

    async def start(self) -> None: ...

    def log(self) -> MetadataLog:
        self._logs.append(_UnlockedLog(self.path, self._logs))
        return self._logs[-1]

    async def tear_snapshot(self, name: str) -> None:
        path = self.path / name
        path.write_bytes(path.read_bytes()[:-3])

    async def snapshot_names(self) -> list[str]:
        return sorted(path.name for path in self.path.glob(files.SNAPSHOTS_GLOB))

    async def stop_logs(self) -> None:
        while self._logs:
            await self._logs.pop().close()

    async def stop(self) -> None:
        await self.stop_logs()

    def crash_at(self, step: int, how: str, patch: pytest.MonkeyPatch) -> Callable[[], int]:
        """The process dies at the `step`-th change of the disk: before, after, or half-way."""
        return _CrashingDisk(step, how, patch).steps_seen


class _CrashingDisk:
    CHANGES = ("pwrite", "fsync", "ftruncate", "rename", "replace", "unlink", "open")

    def __init__(self, step: int, how: str, patch: pytest.MonkeyPatch) -> None:
        self._step, self._how, self._seen, self._dead = step, how, 0, False
        for name in self.CHANGES:
            patch.setattr(os, name, self._guard(name, getattr(os, name)))

    def steps_seen(self) -> int:
        return self._seen

    def _guard(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            changes = name != "open" or bool(args[1] & os.O_CREAT)
            if self._dead and changes:
                raise Crash
            if not changes:
                return real(*args, **kwargs)
            self._seen += 1
            if self._seen - 1 != self._step:
                return real(*args, **kwargs)
            self._dead = True
            if self._how == "after":
                real(*args, **kwargs)
            elif self._how == "half" and name == "pwrite":
                real(args[0], args[1][: len(args[1]) // 2], args[2])
            raise Crash

        return call


class RingShell:
    """The Kubernetes shell over a fake API server, without sockets."""

    def __init__(self) -> None:
        self.store = Store()
        self.faults = Faults(self.store)
        self._logs: list[MetadataLog] = []

    async def start(self) -> None: ...

    def log(self) -> MetadataLog:
        self._logs.append(RingLog(DirectApi(self.faults), PLACE, FAST))
        return self._logs[-1]

    async def tear_snapshot(self, name: str) -> None:
        del self.store.objects["metadatasnapshots", f"{name}-0"]

    async def snapshot_names(self) -> list[str]:
        return sorted(
            name
            for (plural, name), item in self.store.objects.items()
            if plural == "metadatasnapshots" and "chunks" in item["spec"]
        )

    async def stop_logs(self) -> None:
        while self._logs:
            await self._logs.pop().close()

    async def stop(self) -> None:
        await self.stop_logs()

    async def store_and_go_on(self, request: Request) -> Answer:
        """No fault: counts as one request in a list of them."""
        return self.store.handle(request)

    async def expire_pages(self, request: Request) -> Answer:
        if "continue" in request.params:
            return Answer(status=410, body=b'{"message": "the continue token is too old"}')
        return self.store.handle(request)

    def crash_at(self, step: int, how: str, patch: pytest.MonkeyPatch) -> Callable[[], int]:
        """The process dies at its `step`-th write: before it, after it, or it lands later."""
        seen = 0
        dead = False
        real = self.faults.handle

        async def handle(request: Request) -> Answer:
            nonlocal seen, dead
            if dead:
                raise Crash
            if not request.writes:
                return await real(request)
            seen += 1
            if seen - 1 != step:
                return await real(request)
            dead = True
            if how == "after":
                await real(request)
            elif how == "half":
                self.faults.late.append(request)
            raise Crash

        patch.setattr(self.faults, "handle", handle)
        return lambda: seen


class HttpShell(RingShell):
    """The same with sockets, through the client library's own configuration."""

    def __init__(self) -> None:
        super().__init__()
        self._server = HttpServer(self.faults)
        self._clients: list[Any] = []

    async def start(self) -> None:
        await self._server.start()

    def log(self) -> MetadataLog:
        api_client = client.ApiClient(client.Configuration(host=self._server.url))
        self._clients.append(api_client)
        log = KubernetesLog(
            api_client, PLACE.namespace, PLACE.cluster_name, PLACE.cluster_id, options=FAST
        )
        self._logs.append(log)
        return log

    async def stop(self) -> None:
        await super().stop()
        for api_client in self._clients:
            await api_client.close()
        await self._server.stop()


Shell = DirectoryShell | RingShell | HttpShell
