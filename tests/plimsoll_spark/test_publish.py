"""The report reaches a ConfigMap: with the token of now, again after silence, never after a no."""

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from unittest import mock

import pytest

from plimsoll_spark.attempts import Claim, Superseded
from plimsoll_spark.publish import (
    ConfigMapPublisher,
    DirectoryPublisher,
    Publisher,
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
        self.unanswered = 0  # patches that are carried out and answered with 503
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
        if self.server.unanswered:
            self.server.unanswered -= 1
            status = 503
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
    _, (path, token, body) = api.patches
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
    assert [token for _, token, _ in api.patches] == ["Bearer first"] * 2 + ["Bearer second"]


def test_busy_api_server_is_asked_again(api: ApiServer, account: Path) -> None:
    api.statuses = [503, 429]
    publisher(api, account).put({"verdict.json": "{}"}, within_s=30)
    assert (len(api.seen), len(api.patches)) == (5, 2)


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
    del api.data["driverId"]
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


def for_report(api: ApiServer) -> Publisher:
    server = f"http://127.0.0.1:{api.server_address[1]}"
    return publisher_for(Report(config_map="soak-report", namespace="kafka", server=server))


def test_driver_claims_its_place_before_it_publishes(api: ApiServer) -> None:
    first, second = for_report(api), for_report(api)
    claim = first.claim(within_s=5)
    assert (claim.report, claim.number, claim.texts) == ("a", 1, {"drill.json": "{}"})
    first.put({"progress.json": "first"}, within_s=5)
    later = second.claim(within_s=5)
    assert (later.number, later.texts["progress.json"]) == (2, "first")
    with pytest.raises(Superseded, match=r"number 1 by its report, ends .* number 2, has begun"):
        first.put({"verdict.json": "first"}, within_s=5)
    second.put({"verdict.json": "second"}, within_s=5)
    assert (api.data["verdict.json"], api.data["driver"]) == ("second", "2")


def test_claim_that_conflicts_is_made_anew(api: ApiServer) -> None:
    """Another driver claims between the look and the patch."""
    first, second = for_report(api), for_report(api)
    request = ConfigMapPublisher._request

    def late(self: ConfigMapPublisher, method: str, body: bytes | None = None) -> dict[str, Any]:
        if self is first and method == "PATCH" and api.data.get("driver") is None:
            second.claim(within_s=5)
        return request(self, method, body)

    with mock.patch.object(ConfigMapPublisher, "_request", late):
        assert first.claim(within_s=30).number == 2
    with pytest.raises(Superseded):
        second.put({"progress.json": "second"}, within_s=5)


def test_claim_without_an_answer_is_known_again(api: ApiServer) -> None:
    reports = for_report(api)
    api.unanswered = 1
    assert reports.claim(within_s=30, alone=True).number == 1
    reports.put({"progress.json": "1"}, within_s=5)
    assert (api.data["progress.json"], api.data["driver"]) == ("1", "1")


def test_lone_driver_leaves_the_first_ones_place(api: ApiServer) -> None:
    first, second = for_report(api), for_report(api)
    first.claim(within_s=5, alone=True)
    with pytest.raises(Superseded, match=r"another one, number 1, has begun"):
        second.claim(within_s=5, alone=True)
    first.put({"verdict.json": "first"}, within_s=5)
    assert api.data["driver"] == "1"


def test_no_driver_claims_after_the_verdict(api: ApiServer) -> None:
    for_report(api).put({"verdict.json": "{}"}, within_s=5)
    with pytest.raises(Superseded, match="has its verdict"):
        for_report(api).claim(within_s=5)
    assert api.data["driver"] == "1"


def test_run_that_the_operator_ended_gets_no_verdict(api: ApiServer) -> None:
    """Its driver was lost with its node, and wakes."""
    reports = for_report(api)
    reports.put({"progress.json": "{}"}, within_s=5)
    api.patch({"data": {"ended": "DriverFailed"}})
    with pytest.raises(Superseded, match=r"the operator has ended .* \(DriverFailed\)"):
        reports.put({"verdict.json": "{}"}, within_s=30)
    with pytest.raises(Superseded, match="the operator has ended"):
        for_report(api).claim(within_s=5)
    assert "verdict.json" not in api.data


def test_directory_has_no_order_of_drivers(tmp_path: Path) -> None:
    reports = DirectoryPublisher(tmp_path / "report")
    assert reports.claim(within_s=1) == Claim()
    reports.put({"progress.json": "{}", "report.html": "<p>"}, within_s=1)
    assert reports.claim(within_s=1) == Claim(texts={"progress.json": "{}"})
