"""The report reaches a ConfigMap: with the token of now, again after silence, never after a no."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from plimsoll_spark.attempts import Superseded
from plimsoll_spark.bucket import Unreachable
from plimsoll_spark.publish import (
    ConfigMapPublisher,
    DirectoryPublisher,
    PublishFailed,
    publisher_for,
)
from plimsoll_spark.settings import Report


class ApiServer(ThreadingHTTPServer):
    """Holds one ConfigMap. Answers with `statuses` in turn, then as Kubernetes does; remembers what
    it was sent."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.statuses: list[int] = []
        self.seen: list[tuple[str, str | None, dict[str, Any]]] = []
        self.uid = "a"
        self.version = 1
        self.data: dict[str, str] = {"drill.json": "{}"}

    def patch(self, body: dict[str, Any]) -> int:
        stated = body.get("metadata", {})
        if (stated.get("uid", self.uid), stated.get("resourceVersion", str(self.version))) != (
            self.uid,
            str(self.version),
        ):
            return 409
        self.version += 1
        self.data.update(body["data"])
        return 200

    @property
    def patches(self) -> list[tuple[str, str | None, dict[str, Any]]]:
        return [one for one in self.seen if one[2]]


class Handler(BaseHTTPRequestHandler):
    server: ApiServer

    def do_PATCH(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append((self.path, self.headers["Authorization"], body))
        assert self.headers["Content-Type"] == "application/merge-patch+json"
        status = self.server.statuses.pop(0) if self.server.statuses else self.server.patch(body)
        self.answer(status)

    def do_GET(self) -> None:
        self.server.seen.append((self.path, self.headers["Authorization"], {}))
        self.answer(self.server.statuses.pop(0) if self.server.statuses else 200)

    def answer(self, status: int) -> None:
        meta = {"uid": self.server.uid, "resourceVersion": str(self.server.version)}
        content = json.dumps({"metadata": meta, "data": self.server.data}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Quiet."""


@pytest.fixture
def api() -> Iterator[ApiServer]:
    with ApiServer() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join(10)


@pytest.fixture
def account(tmp_path: Path) -> Path:
    (tmp_path / "token").write_text("first\n")
    return tmp_path


def publisher(api: ApiServer, account: Path) -> ConfigMapPublisher:
    server = f"http://127.0.0.1:{api.server_address[1]}"
    return ConfigMapPublisher("kafka", "soak-report", server=server, account=account)


def test_publisher_patches_config_map_with_all_report_files(api: ApiServer, account: Path) -> None:
    publisher(api, account).put({"verdict.json": "{}", "report.html": "<p>"}, within_s=5)
    ((path, token, body),) = api.patches
    assert path == "/api/v1/namespaces/kafka/configmaps/soak-report"
    assert token == "Bearer first"
    assert body["data"] == {"verdict.json": "{}", "report.html": "<p>", "driver": "1"}


def test_api_server_without_login_gets_no_credentials(api: ApiServer) -> None:
    server = f"http://127.0.0.1:{api.server_address[1]}"
    asked = Report(config_map="soak-report", namespace="kafka", server=server)
    publisher_for(asked).put({"verdict.json": "{}"}, within_s=5)
    path, token, _ = api.seen[0]
    assert path == "/api/v1/namespaces/kafka/configmaps/soak-report"
    assert token is None


def test_token_is_read_anew_for_every_patch(api: ApiServer, account: Path) -> None:
    reports = publisher(api, account)
    reports.put({"progress.json": "1"}, within_s=5)
    (account / "token").write_text("second")
    reports.put({"progress.json": "2"}, within_s=5)
    assert [token for _, token, _ in api.patches] == ["Bearer first", "Bearer second"]


def test_busy_api_server_is_asked_again(api: ApiServer, account: Path) -> None:
    api.statuses = [503, 429]
    publisher(api, account).put({"verdict.json": "{}"}, within_s=30)
    assert (len(api.seen), len(api.patches)) == (4, 1)


def test_refusal_is_final(api: ApiServer, account: Path) -> None:
    api.statuses = [403]
    with pytest.raises(PublishFailed, match="403"):
        publisher(api, account).put({"verdict.json": "{}"}, within_s=30)
    assert len(api.seen) == 1


def test_absent_api_server_is_abandoned_in_time(account: Path) -> None:
    unreachable = ConfigMapPublisher("kafka", "r", server="http://127.0.0.1:9", account=account)
    with pytest.raises(PublishFailed, match="could not write to the ConfigMap"):
        unreachable.put({"progress.json": "{}"}, within_s=0.2)


def test_directory_takes_the_same_files(tmp_path: Path) -> None:
    directory = tmp_path / "report"
    DirectoryPublisher(directory).put({"verdict.json": "{}", "report.html": "<p>"}, within_s=1)
    assert sorted(p.name for p in directory.iterdir()) == ["report.html", "verdict.json"]


def test_text_of_the_operator_is_read(api: ApiServer, account: Path) -> None:
    server = f"http://127.0.0.1:{api.server_port}"
    publisher = ConfigMapPublisher("kafka", "x-report", server=server, account=account)
    assert publisher.get("drill.json") == "{}"
    assert api.seen[0][:2] == ("/api/v1/namespaces/kafka/configmaps/x-report", "Bearer first")
    assert publisher.get("other") is None
    api.statuses = [503]
    assert publisher.get("drill.json") is None


def test_text_in_a_directory_is_read(tmp_path: Path) -> None:
    publisher = DirectoryPublisher(tmp_path)
    assert publisher.get("drill.json") is None
    (tmp_path / "drill.json").write_text("{}")
    assert publisher.get("drill.json") == "{}"


def test_driver_of_a_lost_node_publishes_nothing_more(api: ApiServer, account: Path) -> None:
    first, second = publisher(api, account), publisher(api, account)
    first.put({"progress.json": "first"}, within_s=5)
    second.put({"progress.json": "second"}, within_s=5)
    with pytest.raises(Superseded, match=r"number 1 by its report, ends .* number 2, has begun"):
        first.put({"verdict.json": "first"}, within_s=5)
    second.put({"verdict.json": "second"}, within_s=5)
    assert (api.data["verdict.json"], api.data["driver"]) == ("second", "2")


def test_operators_patch_does_not_end_the_driver(api: ApiServer, account: Path) -> None:
    reports = publisher(api, account)
    reports.put({"progress.json": "1"}, within_s=5)
    api.patch({"data": {"drill.json": "[]"}})
    reports.put({"progress.json": "2"}, within_s=30)
    assert api.data == {"progress.json": "2", "drill.json": "[]", "driver": "1"}


def test_patch_without_an_answer_is_repeated(api: ApiServer, account: Path) -> None:
    reports = publisher(api, account)
    reports.put({"progress.json": "1"}, within_s=5)
    api.statuses = [503]
    reports.put({"progress.json": "2"}, within_s=30)
    assert (api.data["progress.json"], api.data["driver"]) == ("2", "1")


def test_report_of_a_namesake_is_left_alone(api: ApiServer, account: Path) -> None:
    reports = publisher(api, account)
    reports.put({"progress.json": "1"}, within_s=5)
    api.uid, api.version, api.data = "b", 7, {}
    with pytest.raises(Superseded, match="one of the same name was created"):
        reports.put({"verdict.json": "1"}, within_s=5)
    assert api.data == {}


def test_paused_driver_takes_no_number_late(api: ApiServer) -> None:
    """It paused before its first patch; the later one has published nothing, either."""
    server = f"http://127.0.0.1:{api.server_address[1]}"
    asked = Report(config_map="soak-report", namespace="kafka", server=server)

    def check() -> None:
        later.put({"progress.json": "later"}, within_s=5)
        raise Superseded("a later one has begun")

    later = publisher_for(asked)
    with pytest.raises(Superseded, match="a later one has begun"):
        publisher_for(asked, check).put({"progress.json": "earlier"}, within_s=5)
    later.put({"verdict.json": "later"}, within_s=5)
    assert (api.data["progress.json"], api.data["driver"]) == ("later", "1")


def test_driver_looks_again_after_a_conflict(api: ApiServer) -> None:
    server = f"http://127.0.0.1:{api.server_address[1]}"
    asked = Report(config_map="soak-report", namespace="kafka", server=server)
    later, looks = publisher_for(asked), []

    def check() -> None:
        looks.append(len(api.seen))
        if len(looks) == 2:
            raise Superseded("a later one has begun")
        later.put({"progress.json": "later"}, within_s=5)

    with pytest.raises(Superseded, match="a later one has begun"):
        publisher_for(asked, check).put({"progress.json": "earlier"}, within_s=30)
    assert (api.data["progress.json"], api.data["driver"]) == ("later", "1")


def test_first_patch_waits_for_the_evidence(api: ApiServer) -> None:
    server = f"http://127.0.0.1:{api.server_address[1]}"
    asked = Report(config_map="soak-report", namespace="kafka", server=server)
    check = mock.Mock(side_effect=[OSError("stale file handle"), Unreachable("no answer"), None])
    publisher_for(asked, check).put({"progress.json": "1"}, within_s=30)
    assert (api.data["driver"], check.call_count) == ("1", 3)
