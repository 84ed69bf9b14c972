"""How `kubectl plimsoll` reaches the operator's view: by the API server, with a token for it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from plimsoll_operator.kube.kube_api import HttpRequest, HttpResponse
from plimsoll_operator.kubectl_plugin.shown import Problem, ViewUnavailable
from plimsoll_operator.kubectl_plugin.view_client import LocalView, ProxiedView

PATH = "/v1/clusters/kafka/main"
NOT_LEADING = {"error": "This operator process does not lead kafka/main; ask another one.",
               "reason": "NotLeading"}  # fmt: skip
PODS = "/api/v1/namespaces/sys/pods"
TOKENS = "/api/v1/namespaces/sys/serviceaccounts/plimsoll-view/token"


def a_pod(name: str, port: int = 9100) -> dict[str, Any]:
    ports = [{"name": "controller", "containerPort": 9093}, {"name": "metrics",
             "containerPort": port}]  # fmt: skip
    return {
        "metadata": {"name": name, "ownerReferences": [{"name": "plimsoll-6f7c9"}]},
        "spec": {"containers": [{"ports": ports}]},
        "status": {"phase": "Running"},
    }


class ApiServer:
    """Answers by path; what is not there is 404."""

    def __init__(self) -> None:
        self.pods = [a_pod("plimsoll-a"), a_pod("plimsoll-b")]
        self.views: dict[str, tuple[int, Any]] = {
            "plimsoll-a:9100": (404, NOT_LEADING),
            "plimsoll-b:9100": (200, {"offset": 7}),
        }
        self.token = 201
        self.asked: list[HttpRequest] = []

    async def send(self, request: HttpRequest) -> HttpResponse:
        self.asked.append(request)
        status, body = self._answer(request)
        return HttpResponse(status=status, body=json.dumps(body).encode())

    def _answer(self, request: HttpRequest) -> tuple[int, Any]:
        if request.path == PODS:
            return 200, {"metadata": {}, "items": self.pods}
        if request.path == TOKENS:
            return self.token, {"status": {"token": "t0k"}, "message": "no token for you"}
        name, _, rest = request.path.removeprefix(f"{PODS}/").partition("/proxy")
        if rest != PATH:
            return 404, {"message": "not found"}
        return self.views.get(name, (503, {"message": "no endpoints"}))

    @property
    def paths(self) -> list[str]:
        return [one.path for one in self.asked]


def a_view(server: ApiServer) -> ProxiedView:
    return ProxiedView(server, "sys")  # type: ignore[arg-type]


async def test_leading_pod_is_found_and_remembered() -> None:
    server = ApiServer()
    view = a_view(server)
    assert await view.get(PATH, {"x": "1"}) == {"offset": 7}
    server.asked.clear()
    assert await view.get(PATH, {}) == {"offset": 7}
    assert server.paths == [PODS, f"{PODS}/plimsoll-b:9100/proxy{PATH}"]


async def test_token_is_bound_to_view_and_header() -> None:
    server = ApiServer()
    await a_view(server).get(PATH, {})
    made = next(one for one in server.asked if one.path == TOKENS)
    spec = json.loads(made.body)["spec"]
    assert spec == {"audiences": ["plimsoll.dev/view"], "expirationSeconds": 600}
    asked = [one for one in server.asked if "/proxy" in one.path]
    assert [dict(one.headers) for one in asked] == [{"X-Plimsoll-Authorization": "Bearer t0k"}] * 2
    assert server.paths.count(TOKENS) == 1


async def test_port_of_the_view_is_the_pods_own() -> None:
    server = ApiServer()
    server.pods = [a_pod("plimsoll-b", 19_100)]
    server.views = {"plimsoll-b:19100": (200, {})}
    assert await a_view(server).get(PATH, {}) == {}


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"pods": []}, "no operator pod in namespace sys"),
        ({"token": 403}, "no token for you"),
        ({"views": {"plimsoll-b:9100": (403, {"message": "pods/proxy is forbidden"})}},
         "pods/proxy is forbidden"),
        ({"views": {"plimsoll-a:9100": (404, NOT_LEADING), "plimsoll-b:9100": (404, NOT_LEADING)}},
         "plimsoll-b does not lead the cluster"),
        ({"views": {"plimsoll-b:9100": (401, {"error": "The API server does not accept this."})}},
         "does not accept this"),
    ],
)  # fmt: skip
async def test_view_that_cannot_be_had_says_why(change: dict[str, Any], sentence: str) -> None:
    server = ApiServer()
    for name, value in change.items():
        setattr(server, name, value)
    with pytest.raises(ViewUnavailable, match=sentence):
        await a_view(server).get(PATH, {})


async def test_refused_query_is_not_an_absent_operator() -> None:
    server = ApiServer()
    server.views["plimsoll-b:9100"] = (404, {"error": "There is no topic x.", "reason": ""})
    with pytest.raises(Problem, match=r"There is no topic x\.") as caught:
        await a_view(server).get(PATH, {})
    assert not isinstance(caught.value, ViewUnavailable)


async def test_local_view_is_asked_without_token_or_proxy() -> None:
    class Local:
        async def send(self, request: HttpRequest) -> HttpResponse:
            assert (request.path, dict(request.headers)) == (PATH, {})
            return HttpResponse(status=200, body=b'{"offset": 3}')

    assert await LocalView(Local()).get(PATH, {}) == {"offset": 3}  # type: ignore[arg-type]
