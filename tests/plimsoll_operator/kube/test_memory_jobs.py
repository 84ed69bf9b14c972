"""Jobs in memory: one pod at a time, and how a Job ends."""

import itertools

import pytest

from plimsoll_operator.api_server import jobs
from plimsoll_operator.api_server.kubelets import RuntimeState, Workloads
from plimsoll_operator.api_server.server import MemoryApiServer, MemoryTransport
from plimsoll_operator.api_server.stateful_sets import listed
from plimsoll_operator.kube.kube_api import KubeApi, Object
from plimsoll_operator.kube.resources import JOBS, PODS

RUNNING = RuntimeState(phase="Running", ready=True)
SUCCEEDED = RuntimeState(phase="Succeeded")
FAILED = RuntimeState(phase="Failed", exit_code=1)


class Runtime:
    """All pods are in one state."""

    def __init__(self) -> None:
        self.now = RUNNING
        self.started: list[str] = []

    def place(self, pod: Object) -> str | None:
        return "one"

    def start(self, pod: Object) -> None:
        self.started.append(pod["metadata"]["name"])

    def stop(self, pod: Object, grace_seconds: int) -> None:
        """It has ended already."""

    def state(self, pod: Object) -> RuntimeState | None:
        return self.now

    def has_ended(self, pod: Object) -> bool:
        return True


class Cluster:
    def __init__(self) -> None:
        uids = itertools.count(1)
        self.now_ms = 1_800_000_000_000
        self.server = MemoryApiServer(
            lambda: self.now_ms, lambda: f"uid-{next(uids)}", namespaces=("kafka",)
        )
        self.runtime = Runtime()
        self.workloads = Workloads(self.server, self.runtime)
        self.kube = KubeApi(MemoryTransport(self.server))

    async def make(self, **spec: object) -> None:
        containers = [{"name": "driver", "image": "spark", "args": ["--config", "x"]}]
        template = {
            "metadata": {"labels": {"app": "check"}},
            "spec": {"restartPolicy": "Never", "containers": containers},
        }
        meta = {"name": "check", "namespace": "kafka"}
        await self.kube.create(JOBS, {"metadata": meta, "spec": {"template": template, **spec}})
        self.settle()

    def settle(self) -> None:
        for _ in range(5):
            jobs.reconcile(self.server)
            self.workloads.reconcile()

    def pods(self) -> list[Object]:
        return [stored.body for stored in listed(self.server, PODS)]

    def becomes(self, state: RuntimeState) -> None:
        self.runtime.now = state
        self.settle()

    async def status(self) -> Object:
        status: Object = (await self.kube.get(JOBS, "kafka", "check"))["status"]
        return status

    async def ending(self) -> tuple[str, str]:
        """(type, reason) of the condition that says that it has ended."""
        (condition,) = (await self.status())["conditions"]
        assert condition["status"] == "True"
        return condition["type"], condition["reason"]


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


async def test_job_has_one_pod_of_its_template(cluster: Cluster) -> None:
    await cluster.make()
    (pod,) = cluster.pods()
    assert pod["metadata"]["name"].startswith("check-")
    labels = pod["metadata"]["labels"]
    assert (labels["app"], labels["batch.kubernetes.io/job-name"]) == ("check", "check")
    assert pod["metadata"]["ownerReferences"][0]["kind"] == "Job"
    assert pod["spec"]["containers"][0]["args"] == ["--config", "x"]
    assert (await cluster.status())["active"] == 1


async def test_job_with_succeeded_pod_is_complete(cluster: Cluster) -> None:
    await cluster.make()
    cluster.becomes(SUCCEEDED)
    status = await cluster.status()
    assert await cluster.ending() == ("Complete", "CompletionsReached")
    assert (status["active"], status["succeeded"], status["failed"]) == (0, 1, 0)
    assert len(cluster.runtime.started) == 1


@pytest.mark.parametrize("limit", [0, 2], ids=["no second try", "two more tries"])
async def test_job_fails_beyond_its_backoff_limit(cluster: Cluster, limit: int) -> None:
    await cluster.make(backoffLimit=limit)
    cluster.becomes(FAILED)
    assert await cluster.ending() == ("Failed", "BackoffLimitExceeded")
    assert (await cluster.status())["failed"] == limit + 1
    assert len(set(cluster.runtime.started)) == limit + 1


@pytest.mark.parametrize(("code", "tries"), [(1, 1), (3, 2)])
async def test_final_exit_code_ends_a_job(cluster: Cluster, code: int, tries: int) -> None:
    codes = {"containerName": "driver", "operator": "In", "values": [1, 2]}
    rules = [{"action": "FailJob", "onExitCodes": codes}]
    await cluster.make(backoffLimit=1, podFailurePolicy={"rules": rules})
    cluster.becomes(RuntimeState(phase="Failed", exit_code=code))
    reason = "PodFailurePolicy" if tries == 1 else "BackoffLimitExceeded"
    assert await cluster.ending() == ("Failed", reason)
    assert len(cluster.runtime.started) == tries


async def test_pod_deleted_before_its_end_counts_failed(cluster: Cluster) -> None:
    await cluster.make(backoffLimit=0)
    (pod,) = cluster.pods()
    meta = pod["metadata"]
    await cluster.kube.delete(PODS, "kafka", meta["name"], uid=meta["uid"])
    cluster.settle()
    assert await cluster.ending() == ("Failed", "BackoffLimitExceeded")
    assert cluster.pods() == []


async def test_job_past_its_deadline_fails(cluster: Cluster) -> None:
    await cluster.make(activeDeadlineSeconds=60)
    cluster.now_ms += 59_000
    cluster.settle()
    assert (await cluster.status())["active"] == 1
    cluster.now_ms += 1_000
    cluster.settle()
    assert await cluster.ending() == ("Failed", "DeadlineExceeded")
    assert cluster.pods() == []


async def test_pods_of_a_deleted_job_go_with_it(cluster: Cluster) -> None:
    await cluster.make()
    job = await cluster.kube.get(JOBS, "kafka", "check")
    await cluster.kube.delete(JOBS, "kafka", "check", uid=job["metadata"]["uid"])
    cluster.settle()
    assert cluster.pods() == []


def a_pod(phase: str) -> Object:
    return {
        "metadata": {"name": "driver", "namespace": "kafka", "uid": "kept"},
        "spec": {"nodeName": "one", "containers": [{"name": "driver", "image": "spark"}]},
        "status": {"phase": phase},
    }


@pytest.mark.parametrize(
    ("phase", "starts"), [("Succeeded", False), ("Failed", False), ("Pending", True)]
)
def test_kubelet_starts_no_previously_ended_pod(phase: str, starts: bool) -> None:
    cluster = Cluster()
    cluster.server.seed(PODS, a_pod(phase))
    cluster.settle()
    assert cluster.runtime.started == (["driver"] if starts else [])
