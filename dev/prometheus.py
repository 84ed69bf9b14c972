"""A real Prometheus with an Alertmanager, on loopback, for tests and pictures.

`Prometheus` is a context manager. Both programs, which `dev/prometheus.sh` fetches, run until it is
left or this process ends. Alertmanager sends every notification to a listener here at once, so
`notifications` holds what a person would have received.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml

from plimsoll_operator.local.ports import HeldPorts

ROOT = Path(__file__).resolve().parent.parent
HOST = "127.0.0.1"
INTERVAL_S = 1
START_S = 30.0
POLL_S = 0.1
ANSWER_S = 20.0
STOP_S = 20.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Notification:
    """A notification of Alertmanager about one alert."""

    firing: bool
    labels: Mapping[str, str]
    annotations: Mapping[str, str]

    @property
    def alert(self) -> str:
        return self.labels["alertname"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """One series of a query's result: labels, and (Unix seconds, value) in the order of time."""

    labels: Mapping[str, str]
    points: tuple[tuple[float, float], ...]

    @property
    def last(self) -> float:
        return self.points[-1][1]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A target to scrape: `host:port`, and the labels that its series get."""

    address: str
    labels: Mapping[str, str] = field(default_factory=dict)


class Prometheus:
    """Prometheus and Alertmanager. `rules`: groups as in a rules file. `watch` sets the targets to
    scrape. A scrape that takes longer than `interval_s` seconds fails."""

    def __init__(
        self, folder: Path, rules: Sequence[Mapping[str, Any]] = (), interval_s: int = INTERVAL_S
    ) -> None:
        self.folder = folder
        self._interval = f"{interval_s}s"
        self.notifications: list[Notification] = []
        self._rules = list(rules)
        self._running = ExitStack()
        self._url = ""
        # The content of the file of targets.
        self._watched = ""

    def __enter__(self) -> Prometheus:
        self.folder.mkdir(parents=True, exist_ok=True)
        programs = Path(_output(str(ROOT / "dev" / "prometheus.sh")))
        with ExitStack() as begun:
            alertmanager = self._alertmanager(begun, programs, self._listen(begun))
            self._url = self._prometheus(begun, programs, alertmanager)
            self._running = begun.pop_all()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._running.close()

    # --- what it looks at -------------------------------------------------------------------------

    def watch(self, targets: Iterable[Target]) -> None:
        """Scrape these targets from now on, in place of the former ones."""
        groups = [{"targets": [one.address], "labels": dict(one.labels)} for one in targets]
        text = json.dumps(groups)
        if text != self._watched:
            part = self.folder / "targets.json.part"
            part.write_text(text)
            part.rename(self.folder / "targets.json")
            self._watched = text

    # --- what it knows ----------------------------------------------------------------------------

    def query(self, text: str) -> list[Series]:
        """Run a query at the present time. Raises RuntimeError with Prometheus' message if it
        refuses the query."""
        found = self._ask("query", {"query": text})
        if found["resultType"] == "scalar":
            return [_series({"metric": {}, "values": [found["result"]]})]
        return [_series({**one, "values": [one["value"]]}) for one in found["result"]]

    def over_time(
        self, text: str, begin_s: float, end_s: float, step_s: float = 1.0
    ) -> list[Series]:
        """Run a query over the period from `begin_s` to `end_s` (Unix seconds), with a value every
        `step_s` seconds. Raises RuntimeError."""
        asked = {"query": text, "start": begin_s, "end": end_s, "step": step_s}
        return [_series(one) for one in self._ask("query_range", asked)["result"]]

    def targets(self) -> list[dict[str, Any]]:
        """Return the targets with `health`, `lastError` and `labels`."""
        found: list[dict[str, Any]] = self._ask("targets", {"state": "active"})["activeTargets"]
        return found

    def rules(self) -> list[dict[str, Any]]:
        """Return the rules with `name`, `health`, `lastError`, and the `state` of alerts."""
        return [rule for group in self._ask("rules", {})["groups"] for rule in group["rules"]]

    def names(self) -> set[str]:
        """Return the names of all metrics that were ever scraped."""
        return set(self._ask("label/__name__/values", {}))

    def _ask(self, what: str, asked: Mapping[str, Any]) -> Any:
        url = f"{self._url}/api/v1/{what}?{urllib.parse.urlencode(asked)}"
        try:
            with urllib.request.urlopen(url, timeout=ANSWER_S) as reply:
                return json.load(reply)["data"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(json.load(error).get("error", str(error))) from error

    # --- the processes ----------------------------------------------------------------------------

    def _listen(self, begun: ExitStack) -> str:
        """Start the receiver of Alertmanager's notifications; return its URL."""
        told = self.notifications

        class Told(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                for alert in body["alerts"]:
                    firing = alert["status"] == "firing"
                    labels, annotations = alert["labels"], alert["annotations"]
                    one = Notification(firing=firing, labels=labels, annotations=annotations)
                    told.append(one)
                self.send_response(204)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Print nothing: the requests are in `notifications`."""

        server = ThreadingHTTPServer((HOST, 0), Told)
        begun.callback(server.server_close)
        begun.callback(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return f"http://{HOST}:{server.server_port}/"

    def _alertmanager(self, begun: ExitStack, programs: Path, listener: str) -> str:
        route = {"receiver": "listener", "group_by": ["..."], "group_wait": "0s"}
        config = {
            "route": {**route, "group_interval": f"{INTERVAL_S}s", "repeat_interval": "1h"},
            "receivers": [{"name": "listener", "webhook_configs": [{"url": listener}]}],
        }
        path, port = self.folder / "alertmanager.yaml", self._port(begun)
        path.write_text(yaml.safe_dump(config))
        self._start(
            begun,
            port,
            str(programs / "prometheus-alertmanager"),
            f"--config.file={path}",
            f"--storage.path={self.folder / 'alertmanager'}",
            f"--web.listen-address={HOST}:{port}",
            "--cluster.listen-address=",
            "--log.level=warn",
        )
        return f"{HOST}:{port}"

    def _prometheus(self, begun: ExitStack, programs: Path, alertmanager: str) -> str:
        rules, port = self.folder / "rules.yaml", self._port(begun)
        rules.write_text(yaml.safe_dump({"groups": self._rules}))
        self.watch(())
        own = {
            "job_name": "targets",
            "honor_labels": True,
            "file_sd_configs": [{"files": [str(self.folder / "targets.json")]}],
        }
        config = {
            "global": {"scrape_interval": self._interval, "evaluation_interval": f"{INTERVAL_S}s"},
            "rule_files": [str(rules)],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alertmanager]}]}]},
            "scrape_configs": [own],
        }
        path = self.folder / "prometheus.yaml"
        path.write_text(yaml.safe_dump(config))
        self._start(
            begun,
            port,
            str(programs / "prometheus"),
            f"--config.file={path}",
            f"--storage.tsdb.path={self.folder / 'prometheus'}",
            f"--web.listen-address={HOST}:{port}",
            "--log.level=warn",
        )
        return f"http://{HOST}:{port}"

    def _port(self, begun: ExitStack) -> int:
        return begun.enter_context(HeldPorts()).pick()

    def _start(self, begun: ExitStack, port: int, program: str, *arguments: str) -> None:
        """Start a program and wait until it is ready. Its log goes to the folder."""
        name = Path(program).name
        log = begun.enter_context((self.folder / f"{name}.log").open("ab"))
        command = [sys.executable, "-m", "plimsoll_process.parent", str(os.getpid()), program]
        process = subprocess.Popen([*command, *arguments], stdout=log, stderr=log)
        begun.callback(_end, process)
        deadline = time.monotonic() + START_S
        while not _is_ready(port):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{name}: {Path(log.name).read_text()}")
            time.sleep(POLL_S)


def _is_ready(port: int) -> bool:
    try:
        with urllib.request.urlopen(f"http://{HOST}:{port}/-/ready", timeout=2) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _output(*command: str) -> str:
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=600)
    return done.stdout.strip()


def _series(found: Mapping[str, Any]) -> Series:
    points = tuple((float(at_s), float(value)) for at_s, value in found["values"])
    return Series(labels=found["metric"], points=points)
