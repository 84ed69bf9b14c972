"""The API server as the demo and the end-to-end tests reach it: the operator's view is read with a
token for it, objects are applied."""

from __future__ import annotations

import http.server
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from dev.api_reader import ApiReader, ReadFailed

VIEW = "/api/v1/namespaces/sys/pods/p:9100/proxy/v1/clusters"
TOKENS = "/api/v1/namespaces/sys/serviceaccounts/plimsoll-view/token"

GROUPS = {
    "/api": [],
    "/apis": [
        {
            "metadata": {"name": "plimsoll.dev"},
            "versions": [
                {
                    "version": "v1alpha1",
                    "resources": [
                        {"resource": "topics", "singularResource": "topic", "scope": "Namespaced"}
                    ],
                }
            ],
        }
    ],
}
TOPIC = {"apiVersion": "plimsoll.dev/v1alpha1", "kind": "Topic", "metadata": {"name": "t"}}


class ApiServer(http.server.ThreadingHTTPServer):
    """Makes tokens, if it has the account, and notes what it was asked."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Answers)
        self.has_account = True
        self.view_status = 200
        self.apply_status = 200
        self.asked: list[tuple[str, Any]] = []
        # What a watch is told.
        self.changes: list[Any] = []


class Answers(http.server.BaseHTTPRequestHandler):
    server: ApiServer

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, body["spec"]["audiences"]))
        found = self.server.has_account
        self.answer(201 if found else 404, {"status": {"token": "abc"}})

    def do_PATCH(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.asked.append((self.path, (self.headers["Content-Type"], body)))
        self.answer(self.server.apply_status, {"kind": "Status", "message": "it may not be"})

    def do_GET(self) -> None:
        if self.path in ("/api", "/apis"):
            self.answer(200, {"items": GROUPS[self.path]})
            return
        self.server.asked.append((self.path, self.headers.get("X-Plimsoll-Authorization")))
        told = [{"type": "MODIFIED", "object": one} for one in self.server.changes]
        self.answer(self.server.view_status, *(told or [{"clusters": []}]))

    def answer(self, status: int, *lines: Any) -> None:
        self.send_response(status)
        self.end_headers()
        self.wfile.write("\n".join(json.dumps(line) for line in lines).encode())

    def log_message(self, *_: Any) -> None: ...


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as made:
        thread = threading.Thread(target=made.serve_forever, daemon=True)
        thread.start()
        yield made
        made.shutdown()
        thread.join()


@pytest.fixture
def reader(server: ApiServer, tmp_path: Path) -> ApiReader:
    url = f"http://127.0.0.1:{server.server_address[1]}"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "a", "cluster": {"server": url}}],
        "users": [{"name": "a", "user": {}}],
        "contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}],
        "current-context": "a",
    }
    path = tmp_path / "kubeconfig"
    path.write_text(yaml.safe_dump(config))
    return ApiReader(str(path))


def test_view_reuses_one_token(server: ApiServer, reader: ApiReader) -> None:
    for _ in range(2):
        assert reader.view(VIEW, "sys", 5) == '{"clusters": []}'
    assert server.asked == [(TOKENS, ["plimsoll.dev/view"]), (VIEW, "Bearer abc"),
                            (VIEW, "Bearer abc")]  # fmt: skip


def test_release_without_view_account_uses_no_token(server: ApiServer, reader: ApiReader) -> None:
    server.has_account = False
    assert reader.view(VIEW, "sys", 5) == '{"clusters": []}'
    assert server.asked[-1] == (VIEW, None)
    assert [path for path, _ in server.asked].count(TOKENS) == 1
    assert reader.view(VIEW, "sys", 5)
    assert [path for path, _ in server.asked].count(TOKENS) == 1


@pytest.mark.parametrize(("status", "tokens"), [(401, 2), (403, 2), (503, 1)])
def test_denied_token_alone_is_replaced(
    server: ApiServer, reader: ApiReader, status: int, tokens: int
) -> None:
    server.view_status = status
    with pytest.raises(ReadFailed):
        reader.view(VIEW, "sys", 5)
    server.view_status = 200
    assert reader.view(VIEW, "sys", 5)
    assert [path for path, _ in server.asked].count(TOKENS) == tokens


def test_object_is_applied_at_its_place_and_strictly(server: ApiServer, reader: ApiReader) -> None:
    reader.apply(TOPIC, "ns", 5)
    ((path, asked),) = server.asked
    place, _, query = path.partition("?")
    assert place == "/apis/plimsoll.dev/v1alpha1/namespaces/ns/topics/t"
    assert {"force=true", "fieldValidation=Strict"} <= set(query.split("&"))
    assert asked == ("application/apply-patch+yaml", TOPIC)


def test_refused_object_fails_with_api_servers_sentence(
    server: ApiServer, reader: ApiReader
) -> None:
    server.apply_status = 422
    with pytest.raises(ReadFailed, match=r"^it may not be$"):
        reader.apply(TOPIC, "ns", 5)


def test_object_in_no_namespace_is_a_failure(server: ApiServer, reader: ApiReader) -> None:
    server.apply_status = 404
    with pytest.raises(ReadFailed, match="no such place"):
        reader.apply(TOPIC, "ns", 5)


def test_changes_are_the_api_servers_versions(server: ApiServer, reader: ApiReader) -> None:
    server.changes = [{"metadata": {"resourceVersion": str(of)}} for of in (4, 5)]
    assert list(reader.changes("/api/v1/namespaces/ns/secrets", "a", "3", 1)) == server.changes
    ((path, _),) = server.asked
    place, _, query = path.partition("?")
    assert place == "/api/v1/namespaces/ns/secrets"
    assert {"watch=1", "fieldSelector=metadata.name%3Da", "resourceVersion=3"} < set(
        query.split("&")
    )


def test_changes_that_are_refused_are_a_failure(server: ApiServer, reader: ApiReader) -> None:
    server.view_status = 403
    with pytest.raises(ReadFailed, match="403"):
        list(reader.changes("/api/v1/namespaces/ns/secrets", "a", "", 1))
