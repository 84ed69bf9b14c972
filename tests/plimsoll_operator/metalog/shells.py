"""Both shells of the metadata log, and what may befall each, behind one face for one test suite."""

import fcntl
import os
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import pytest
from tests.plimsoll_operator.metalog.fake_api import (
    DirectApi,
    Fault,
    Faults,
    HttpServer,
    Request,
    Store,
)
from tests.plimsoll_operator.transports import transport_to

from plimsoll_operator.metalog import directory
from plimsoll_operator.metalog.directory import DirectoryLog
from plimsoll_operator.metalog.interface import MetadataLog, OpenedLog
from plimsoll_operator.metalog.kube_objects import Answer, Place
from plimsoll_operator.metalog.kubernetes_log import KubernetesLog, RingLog, RingOptions

SLOTS = 16
CLUSTER_ID = uuid.UUID("5f2b1c3a-9d4e-4f60-8a7b-0c1d2e3f4a5b")
PLACE = Place(namespace="default", cluster_name="demo", cluster_id=CLUSTER_ID)
FAST = RingOptions(slots=SLOTS, attempt_timeout_ms=250, backoff_ms=1, poll_ms=5)


class Crash(BaseException):
    """The process ends here."""


class _UnlockedLog(DirectoryLog):
    """Finds the directory unlocked, whoever holds it, as on a broken network file system."""

    def __init__(self, path: Path, others: list["_UnlockedLog"]) -> None:
        super().__init__(path, CLUSTER_ID, poll_ms=5)
        self._others = others

    async def open(self) -> OpenedLog:
        for other in self._others:
            if other._lock is not None:
                fcntl.flock(other._lock, fcntl.LOCK_UN)
        return await super().open()


class Shell(Protocol):
    """What the contract's tests ask of a shell."""

    crash_stride: int
    """1 to die at every write there is."""

    async def start(self) -> None: ...
    def log(self) -> MetadataLog:
        """Another process that opens the same log."""

    async def tear_snapshot(self, name: str) -> None: ...
    async def snapshot_names(self) -> list[str]: ...
    def crash_at(self, step: int, how: str, patch: pytest.MonkeyPatch) -> None:
        """The process dies at its `step`-th write: before it, after it, or half-way."""

    async def land(self) -> None:
        """What was half-way when the process died happens now, if it can."""

    async def reset(self) -> None:
        """Another, empty log."""

    async def stop(self) -> None: ...


class DirectoryShell:
    crash_stride = 1

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
        return sorted(path.name for path in self.path.glob(directory.SNAPSHOTS_GLOB))

    async def stop_logs(self) -> None:
        while self._logs:
            await self._logs.pop().close()

    async def stop(self) -> None:
        await self.stop_logs()

    def crash_at(self, step: int, how: str, patch: pytest.MonkeyPatch) -> None:
        _CrashingDisk(step, how, patch)

    async def land(self) -> None: ...

    async def reset(self) -> None:
        await self.stop_logs()
        if self.path.exists():
            for path in self.path.iterdir():
                path.unlink()


class _CrashingDisk:
    CHANGES = ("pwrite", "fsync", "ftruncate", "rename", "replace", "unlink", "open")

    def __init__(self, step: int, how: str, patch: pytest.MonkeyPatch) -> None:
        self._step, self._how, self._seen, self._dead = step, how, 0, False
        for name in self.CHANGES:
            patch.setattr(os, name, self._guard(name, getattr(os, name)))

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

    crash_stride = 1

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

    def crash_at(self, step: int, how: str, patch: pytest.MonkeyPatch) -> None:
        crashing = CrashingApi(step, how, self.faults.handle, self.faults.late)
        patch.setattr(self.faults, "handle", crashing.handle)

    async def land(self) -> None:
        self.faults.land()

    async def reset(self) -> None:
        await self.stop_logs()
        self.store.objects.clear()
        self.faults.late.clear()


class CrashingApi:
    """Ends its caller at the `step`-th write; half-way means that the write happens later."""

    def __init__(self, step: int, how: str, real: Fault, late: list[Request]) -> None:
        self._step, self._how, self._real, self._late = step, how, real, late
        self._seen = 0
        self._dead = False

    async def handle(self, request: Request) -> Answer:
        if self._dead:
            raise Crash
        if not request.writes:
            return await self._real(request)
        self._seen += 1
        if self._seen - 1 != self._step:
            return await self._real(request)
        self._dead = True
        if self._how == "after":
            await self._real(request)
        elif self._how == "half":
            self._late.append(request)
        raise Crash


class HttpShell(RingShell):
    """The same with sockets, by the official client."""

    def __init__(self) -> None:
        super().__init__()
        self._server = HttpServer(self.faults)

    async def start(self) -> None:
        await self._server.start()

    @property
    def url(self) -> str:
        return self._server.url

    def log(self) -> MetadataLog:
        transport = transport_to(self._server.url)
        log = KubernetesLog(
            transport, PLACE.namespace, PLACE.cluster_name, PLACE.cluster_id, options=FAST
        )
        self._logs.append(log)
        return log

    async def stop(self) -> None:
        await super().stop()
        await self._server.stop()
