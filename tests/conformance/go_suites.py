"""The test suites of clients in Go, as their projects run them against Kafka: fetched by the module
proxy, built outside the tree, run against whichever cluster is given.

Called by `test_go_suites.py`, and by `test_tls_clients.py` for a client of its own.  sarama's tests
cut and slow down connections by way of toxiproxy; its five proxies have fixed ports.  Decides
nothing about outcomes.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from tests.conformance.kafka_jars import CACHE
from tests.integration.local_cluster import wait_for

from plimsoll_operator.local.ports import HeldPorts

BUILD_S = 1200
TOXIPROXY = "github.com/Shopify/toxiproxy/v2/cmd/server@v2.12.0"
PROXY_PORTS = tuple(range(29091, 29096))
BUILT = CACHE / "go-suites"
OUTCOME = re.compile(r"^ *--- (PASS|FAIL|SKIP): (\S+) \(([\d.]+)s\)", re.MULTILINE)


class GoUnavailable(RuntimeError):
    """No `go` on this machine, or a module that it could not fetch or build."""


class Adapted(NamedTuple):
    """A line of a suite that is about its environment, not about Kafka."""

    file: str
    theirs: str
    ours: str


@dataclass(frozen=True, kw_only=True)
class Suite:
    """A client's tests, in the version that is tried."""

    name: str
    module: str
    version: str
    package: str = "."
    tags: str = ""
    # File, text, other text: where the tests know the numbers of their own environment's brokers.
    adapted: tuple[Adapted, ...] = ()

    @property
    def directory(self) -> Path:
        """Its sources, in Go's own store of modules."""
        found = json.loads(_go("mod", "download", "-json", f"{self.module}@{self.version}"))
        return Path(found["Dir"]) / self.package

    def built(self) -> Path:
        """Its tests as a program."""
        program = BUILT / f"{self.name}-{self.version}.test"
        if not program.exists():
            directory = self._adapted_copy() if self.adapted else self.directory
            words = ("test", "-c", "-tags", self.tags, "-o", str(program), ".")
            _go(*words, directory=directory)
        return program

    def _adapted_copy(self) -> Path:
        copy = BUILT / f"{self.name}-{self.version}"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(self.directory, copy, copy_function=shutil.copyfile)
        for directory in (copy, *copy.rglob("*/")):
            directory.chmod(0o755)
        for file, theirs, ours in self.adapted:
            text = (copy / file).read_text()
            assert text.count(theirs) == 1, f"{file} of {self.name} {self.version}"
            (copy / file).write_text(text.replace(theirs, ours))
        return copy


SARAMA = Suite(
    name="sarama",
    module="github.com/IBM/sarama",
    version="v1.61.1",
    tags="functional",
    # Brokers are numbered from 0 here, and proxies from 1.
    adapted=(
        Adapted(
            "functional_test.go",
            'proxyName := fmt.Sprintf("kafka%d", brokerID)',
            'proxyName := fmt.Sprintf("kafka%d", brokerID+1)',
        ),
    ),
)
CONFLUENT_KAFKA_GO = Suite(
    name="confluent-kafka-go",
    module="github.com/confluentinc/confluent-kafka-go/v2",
    version="v2.11.1",
    package="kafka",
)


def sarama_client() -> Path:
    """The program in `sarama/`, built with the version of sarama whose suite is run."""
    source = Path(__file__).with_name("sarama") / "main.go"
    digest = hashlib.sha256(source.read_bytes()).hexdigest()[:12]
    program = BUILT / f"sarama-client-{SARAMA.version}-{digest}"
    if not program.exists():
        work = BUILT / f"sarama-client-{digest}"
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(parents=True)
        shutil.copyfile(source, work / "main.go")
        (work / "go.mod").write_text(
            f"module sarama-client\n\nrequire {SARAMA.module} {SARAMA.version}\n"
        )
        _go("mod", "tidy", directory=work)
        _go("build", "-o", str(program), ".", directory=work)
    return program


def _go(*words: str, directory: Path | None = None, **environment: str) -> str:
    go = shutil.which("go")
    if go is None:
        raise GoUnavailable("go is not installed")
    BUILT.mkdir(parents=True, exist_ok=True)
    done = subprocess.run(
        [go, *words],
        cwd=directory or BUILT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=BUILD_S,
        check=False,
    )
    if done.returncode != 0:
        raise GoUnavailable(f"go {' '.join(words)}: {done.stderr[-2000:]}")
    return done.stdout


def run(suite: Suite, log: Path, limit_s: int, *words: str, **environment: str) -> dict[str, str]:
    """Test -> PASS, FAIL or SKIP; one that did not end within its time is a FAIL.

    Where tests say nothing of themselves (a panic, a time-out), `log` tells the rest.
    """
    program = suite.built()
    work = log.parent / suite.name
    work.mkdir()
    for name, text in FILES.get(suite.name, {}).items():
        (work / name).write_text(text.format(**environment))
    with log.open("wb") as said:
        subprocess.run(
            [str(program), "-test.v", f"-test.timeout={limit_s}s", *words],
            cwd=work,
            env={**os.environ, **environment},
            stdout=said,
            stderr=subprocess.STDOUT,
            timeout=limit_s + 60,
            check=False,
        )
    text = log.read_text(errors="replace")
    found = {name: outcome for outcome, name, _ in OUTCOME.findall(text)}
    began = re.findall(r"^=== RUN +(\S+)", text, re.MULTILINE)
    return {name: found.get(name, "FAIL") for name in began}


# What a suite reads beside its sources.
FILES: Mapping[str, Mapping[str, str]] = {
    "confluent-kafka-go": {
        "testconf.json": '{{"Brokers": "{BROKERS}", "TopicName": "test", "GroupID": "testgroup",'
        ' "PerfMsgCount": 20000, "PerfMsgSize": 100, "Config": ["api.version.request=true"]}}'
    }
}


@contextlib.contextmanager
def toxiproxy(upstream: list[str], log: Path) -> Iterator[str]:
    """Five proxies, `kafka1` to `kafka5`, before five brokers; the address to steer it."""
    program = BUILT / "server"
    if not program.exists():
        _go("install", TOXIPROXY, GOBIN=str(BUILT))
    with HeldPorts() as held, log.open("wb") as said:
        port = held.pick()
        url = f"http://127.0.0.1:{port}"
        process = subprocess.Popen(
            [str(program), "-host", "127.0.0.1", "-port", str(port)], stdout=said, stderr=said
        )
        try:
            proxies = [
                {"name": f"kafka{number}", "listen": f"127.0.0.1:{own}", "upstream": broker}
                for number, (own, broker) in enumerate(
                    zip(PROXY_PORTS, upstream, strict=True), start=1
                )
            ]
            wait_for("toxiproxy", lambda: _posted(f"{url}/populate", proxies))
            yield url
        finally:
            process.terminate()
            process.wait()


def _posted(url: str, body: object) -> bool:
    request = urllib.request.Request(url, json.dumps(body).encode())
    try:
        with urllib.request.urlopen(request, timeout=10) as reply:
            return bool(reply.status == 201)
    except OSError:
        return False  # it does not listen yet
