"""`plimsoll preflight` as it is typed: exit codes, output, and one run over HTTP."""

import asyncio
import itertools
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from kubernetes.aio.client.configuration import Configuration
from typer.testing import CliRunner, Result

from plimsoll_operator import cli
from plimsoll_operator.api_server.kinds import shipped
from plimsoll_operator.api_server.server import MemoryApiServer
from plimsoll_operator.api_server.serving import ServedApi
from plimsoll_operator.kube import official_transport
from plimsoll_operator.kube.official_transport import Access, NoCluster
from plimsoll_operator.preflight.checklist import BEFORE, FAIRNESS_VALUE
from plimsoll_operator.preflight.facts import Verdict, Wishes
from plimsoll_operator.preflight.limit_checks import LIMITS_KEPT
from plimsoll_operator.preflight.pool_checks import POOLS
from plimsoll_operator.preflight.rights import READ_NODES, VERIFICATION


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli.app, ["preflight", *arguments])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("--check", "weather"), "no check weather"),
        (("--set", "rbac.create=false"), "rbac.readNodes"),
        (("--set", "rbac.readNodes=perhaps"), "=true or =false"),
    ],
)
def test_bad_arguments_are_named_with_exit_code_2(arguments: tuple[str, ...], sentence: str):
    done = run(*arguments)
    assert done.exit_code == 2
    assert sentence in done.output


def test_missing_kubernetes_ends_with_exit_code_1(monkeypatch: pytest.MonkeyPatch):
    async def nowhere() -> Access:
        raise NoCluster("This is not a pod.")

    monkeypatch.setattr(official_transport, "find_access", nowhere)
    done = run()
    assert (done.exit_code, done.output) == (1, "This is not a pod.\n")


def test_exit_code_states_the_worst_check(
    monkeypatch: pytest.MonkeyPatch,
):
    asked: list[tuple[Wishes, list[str]]] = []
    result = "warning"

    async def answer(wishes: Wishes, wanted: list[str]) -> list[Verdict]:
        asked.append((wishes, wanted))
        return [Verdict(check="rights", result=result, message="Told.")]  # type: ignore[arg-type]

    monkeypatch.setattr(cli, "_preflight", answer)
    done = run(
        "-n", "here", "--watch-namespace", "a", "--watch-namespace", "b",
        "--storage-class", "fast", "--set", f"{FAIRNESS_VALUE}=false",
        "--set", f"{VERIFICATION}=true", "--json",
    )  # fmt: skip
    assert done.exit_code == 0
    assert json.loads(done.output)["ok"] is True
    wishes, wanted = asked[0]
    assert (wishes.namespace, wishes.watched, wishes.storage_class) == ("here", ("a", "b"), "fast")
    assert wishes.values == {READ_NODES, VERIFICATION}
    assert wanted == [one for one in BEFORE if one != "priority-and-fairness"]
    result = "failed"
    done = run("--check", "rights")
    assert done.exit_code == 1
    assert asked[1][1] == ["rights"]
    assert "failed   rights  Told." in done.output


def test_silent_api_server_is_one_sentence(monkeypatch: pytest.MonkeyPatch):
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))  # nobody listens
        url = f"http://127.0.0.1:{closed.getsockname()[1]}"

        async def found() -> Access:
            return Access(Configuration(host=url))

        monkeypatch.setattr(official_transport, "find_access", found)
        done = run()
    assert done.exit_code == 1
    assert done.output.count("No API server answers") == 1
    assert done.output.count("127.0.0.1") <= 2, "told once, by the client's words"
    assert "KUBECONFIG" in done.output


@asynccontextmanager
async def served(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[None]:
    """An API server over HTTP, which the command finds."""
    uids = itertools.count(1)
    server = MemoryApiServer(
        lambda: 1_800_000_000_000, lambda: str(next(uids)), definitions=shipped()
    )
    endpoint = ServedApi(server, token="t")
    await endpoint.start()

    async def found() -> Access:
        configuration = Configuration(host=endpoint.url)
        configuration.api_key["BearerToken"] = "Bearer t"
        return Access(configuration)

    monkeypatch.setattr(official_transport, "find_access", found)
    try:
        yield
    finally:
        await endpoint.stop()


async def test_it_reads_an_api_server_over_http(monkeypatch: pytest.MonkeyPatch):
    checks = ("kubernetes-version", "storage-class", "api-latency", "kinds-served")
    options = [option for name in checks for option in ("--check", name)]
    async with served(monkeypatch):
        done = await asyncio.to_thread(run, "-n", "default", "--json", *options)
    told = {one["check"]: one for one in json.loads(done.output)["checks"]}
    assert list(told) == list(checks)
    assert "v1.34.0" in told["kubernetes-version"]["message"]
    assert told["storage-class"]["result"] == "warning", "this server serves no such kind"
    assert "100 writes of one ConfigMap" in told["api-latency"]["message"]
    assert told["kinds-served"]["result"] == "ok"


def test_file_adds_the_checks_of_its_objects(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    asked: list[tuple[Wishes, list[str]]] = []

    async def answer(wishes: Wishes, wanted: list[str]) -> list[Verdict]:
        asked.append((wishes, wanted))
        return [Verdict(check=POOLS, result="ok", message="Told.")]

    monkeypatch.setattr(cli, "_preflight", answer)
    assert run("--file", "examples/logcluster-pools.yaml").exit_code == 0
    ((wishes, wanted),) = asked
    assert wishes.cluster is not None
    assert [pool.name for pool in wishes.cluster.spec.pools or ()] == ["old", "fast"]
    assert wanted == [*BEFORE, POOLS, LIMITS_KEPT]
    other = tmp_path / "topic.yaml"
    other.write_text("kind: ConfigMap")
    assert run("--file", str(other)).exit_code == 2


PLAN = """
apiVersion: plimsoll.dev/v1alpha1
kind: LogCluster
metadata: {name: main}
spec: {storage: {size: 1Gi}}
---
apiVersion: plimsoll.dev/v1alpha1
kind: Topic
metadata: {name: orders}
spec: {clusterRef: {name: main}, partitions: PARTITIONS}
"""


@pytest.mark.parametrize(
    ("partitions", "exit_code", "sentence"),
    [
        (12, 0, "1 Topic with 12 partitions keep to all 5 limits: 12 replicas a broker"),
        (
            6_000,
            0,
            "Topic orders has 6,000 partitions; Plimsoll is made and tested",
        ),
    ],
)
async def test_file_is_compared_with_limits(
    partitions: int,
    exit_code: int,
    sentence: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
):
    file = tmp_path / "cluster.yaml"
    file.write_text(PLAN.replace("PARTITIONS", str(partitions)))
    async with served(monkeypatch):
        done = await asyncio.to_thread(run, "--check", "limits", "--file", str(file))
    assert done.exit_code == exit_code
    assert sentence in " ".join(done.output.split())
