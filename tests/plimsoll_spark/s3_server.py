"""An S3 server of this machine (versitygw), which keeps each bucket in a directory."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import TracebackType

import psutil
from tests.integration.local_cluster import wait_for

ROOT = Path(__file__).resolve().parents[2]
BUILD_S = 560
KEY, SECRET = "plimsoll-tests", "a-secret-of-the-tests"
BUCKET = "proofs"


class S3Server:
    """Runs inside its context. It may be stopped and started again, at the same address."""

    def __init__(self, directory: Path) -> None:
        built = subprocess.run(
            [ROOT / "dev" / "s3server.sh"],
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=BUILD_S,
        )
        self._program = built.stdout.splitlines()[-1]
        self._directory = directory
        self.port = 0  # the kernel picks one at the first start
        self._process: subprocess.Popen[bytes] | None = None
        self.files = directory / BUCKET
        self.files.mkdir(parents=True)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def login(self, directory: Path, secret: str = SECRET) -> Path:
        """A directory as the kubelet mounts the Secret of a bucket."""
        directory.mkdir()
        (directory / "AWS_ACCESS_KEY_ID").write_text(KEY)
        (directory / "AWS_SECRET_ACCESS_KEY").write_text(secret)
        return directory

    def start(self) -> None:
        log = (self._directory.parent / "s3.log").open("ab")
        with log:
            self._process = subprocess.Popen(
                [
                    self._program,
                    *("--port", f"127.0.0.1:{self.port}"),
                    *("posix", "--sidecar", str(self._sidecar()), str(self._directory)),
                ],
                stdout=log,
                stderr=log,
                env={**os.environ, "ROOT_ACCESS_KEY": KEY, "ROOT_SECRET_KEY": SECRET},
            )
        self.port = wait_for("the S3 server", self._listens, 60, 0.1)

    def _listens(self) -> int | None:
        assert self._process is not None
        assert self._process.poll() is None, (self._directory.parent / "s3.log").read_text()
        found = psutil.Process(self._process.pid).net_connections("tcp4")
        return next((one.laddr.port for one in found if one.status == psutil.CONN_LISTEN), None)

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def _sidecar(self) -> Path:
        """Where metadata is kept, since the test's file system may have no extended attributes."""
        path = self._directory.parent / "s3-metadata"
        path.mkdir(exist_ok=True)
        return path

    def __enter__(self) -> S3Server:
        self.start()
        return self

    def __exit__(
        self,
        _type: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self.stop()
