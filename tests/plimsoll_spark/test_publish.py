"""The report reaches a ConfigMap: with the token of now, again after silence, never after a no."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from plimsoll_spark.publish import (
    ConfigMapPublisher,
    DirectoryPublisher,
    PublishFailed,
    publisher_for,
)
from plimsoll_spark.settings import Report


class ApiServer(ThreadingHTTPServer):
    """Answers with `statuses` in turn, then 200; remembers what it was sent."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.statuses: list[int] = []
        self.seen: list[tuple[str, str | None, dict[str, object]]] = []


class Handler(BaseHTTPRequestHandler):
    server: ApiServer

    def do_PATCH(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.seen.append((self.path, self.headers["Authorization"], body))
        assert self.headers["Content-Type"] == "application/merge-patch+json"
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        self.send_response(status)
        self.send_header("Content-Length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def do_GET(self) -> None:
        self.server.seen.append((self.path, self.headers["Authorization"], {}))
        answer = json.dumps({"data": {"drill.json": "{}"}}).encode()
        status = self.server.statuses.pop(0) if self.server.statuses else 200
        self.send_response(status)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

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
    path, token, body = api.seen[0]
    assert path == "/api/v1/namespaces/kafka/configmaps/soak-report"
    assert token == "Bearer first"
    assert body == {"data": {"verdict.json": "{}", "report.html": "<p>"}}


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
    assert [token for _, token, _ in api.seen] == ["Bearer first", "Bearer second"]


def test_busy_api_server_is_asked_again(api: ApiServer, account: Path) -> None:
    api.statuses = [503, 429]
    publisher(api, account).put({"verdict.json": "{}"}, within_s=30)
    assert len(api.seen) == 3


def test_refusal_is_final(api: ApiServer, account: Path) -> None:
    api.statuses = [403]
    with pytest.raises(PublishFailed, match="403"):
        publisher(api, account).put({"verdict.json": "{}"}, within_s=30)
    assert len(api.seen) == 1


def test_absent_api_server_is_abandoned_in_time(account: Path) -> None:
    unreachable = ConfigMapPublisher("kafka", "r", server="http://127.0.0.1:9", account=account)
    with pytest.raises(PublishFailed, match="could not be patched"):
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
