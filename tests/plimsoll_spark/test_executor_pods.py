"""What a driver with executors states, sends and says, without any executor."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest import mock

import msgspec
import pytest
from tests.plimsoll_spark.tables import agreeing, examined, write_ledger
from tests.plimsoll_spark.test_producer import a_plan

from plimsoll_spark import executor, executor_drive, executor_start, ledger, session
from plimsoll_spark.drive import Drive
from plimsoll_spark.executor_drive import ATTEMPTS, cause, parts, produce_part
from plimsoll_spark.lanes import run_in_lanes
from plimsoll_spark.settings import Pods, Produce, Refusal, Refused, Runner, Settings

PODS = Pods(namespace="kafka", image="spark:1", image_pull_policy="IfNotPresent", cpu="100m")
RUNNER = Runner(executors=2, pods=PODS)


def a_drive(tmp_path: Path, producers: int = 2, **produce: Any) -> Drive:
    settings = Settings(name="n", bootstrap="b:1", topic="t", produce=Produce(**produce))
    return Drive(run="r", settings=settings, producers=producers, stop_at_s=0.0, work=tmp_path)


def test_parts_send_all_records_as_different_producers(tmp_path: Path) -> None:
    found = list(parts(a_drive(tmp_path, records=100_001, records_per_second=2_000)))
    assert sum(part.records for part in found) == 100_001
    assert max(part.records for part in found) == 10_000
    numbers = [part.producer for part in found]
    assert numbers == [ATTEMPTS * place for place in range(len(found))]


def test_parts_of_largest_drive_have_producer_numbers(tmp_path: Path) -> None:
    found = list(parts(a_drive(tmp_path, producers=64, records=10**9)))
    assert sum(part.records for part in found) == 10**9
    assert found[-1].producer + ATTEMPTS <= 2**16


def test_executor_becomes_backend_with_stated_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", "/jdk")
    stated = {
        "SPARK_JAVA_OPT_10": "-Dlast",
        "SPARK_JAVA_OPT_2": "-Dfirst",
        "SPARK_EXECUTOR_MEMORY": "512m",
        "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@[fd00::1]:7078",
        "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "2",
        "SPARK_APPLICATION_ID": "app",
        "SPARK_RESOURCE_PROFILE_ID": "0",
        "SPARK_EXECUTOR_POD_NAME": "check-executor-1",
        "SPARK_EXECUTOR_POD_IP": "fd00::2",
    }
    words = executor.command(stated, "/jars/*")
    assert words[:4] == ["/jdk/bin/java", "-Dfirst", "-Dlast", "-Dspark.master=k8s://"]
    assert words[words.index("--hostname") + 1] == "[fd00::2]"
    assert words[words.index("-cp") + 1] == "/jars/*"
    assert "-Xmx512m" in words


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ({}, None),
        (
            {
                "conditions": [
                    {
                        "type": "PodScheduled",
                        "status": "False",
                        "reason": "Unschedulable",
                        "message": "0/3 nodes are available: 3 Insufficient memory.",
                    }
                ]
            },
            "Unschedulable: 0/3 nodes are available: 3 Insufficient memory.",
        ),
        (
            {
                "conditions": [{"type": "PodScheduled", "status": "True"}],
                "containerStatuses": [{"state": {"waiting": {"reason": "ImagePullBackOff"}}}],
            },
            "ImagePullBackOff",
        ),
    ],
)
def test_pending_pod_is_told_in_schedulers_words(status: dict[str, Any], told: str | None) -> None:
    assert executor_start.waits_for({"status": status}) == told


def test_quota_refuses_run_before_it_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    template = tmp_path / "executor.json"
    template.write_text(json.dumps({"metadata": {}, "spec": {"containers": [{"name": "e"}]}}))
    asked: list[Any] = []

    def ask(method: str, path: str, body: Any = None) -> tuple[int, dict[str, Any]]:
        asked.append((method, path, body))
        return 403, {"message": "exceeded quota: small, requested: pods=1, used: pods=2"}

    monkeypatch.setattr(executor_start, "_ask", ask)
    pods = msgspec.structs.replace(PODS, template=str(template))
    with pytest.raises(Refusal) as refused:
        executor_start.refuse_pods("check", Runner(executors=2, pods=pods))
    assert refused.value.reason is Refused.EXECUTORS_REFUSED
    assert "exceeded quota: small" in refused.value.message
    ((method, path, body),) = asked
    assert (method, path) == ("POST", "/api/v1/namespaces/kafka/pods?dryRun=All")
    assert body["spec"]["containers"][0]["resources"]["limits"] == {"memory": "1024Mi"}


def test_lanes_begin_nothing_after_an_error() -> None:
    done: list[int] = []

    def work(item: int) -> None:
        if item == 3:
            raise ValueError("the third")
        done.append(item)

    with pytest.raises(ValueError, match="the third"):
        run_in_lanes([1, 2, 3, 4, 5], work, 1)
    assert done == [1, 2]


def test_second_attempt_of_part_is_another_producer(tmp_path: Path) -> None:
    part = replace(a_plan(tmp_path, records=5), producer=3 * ATTEMPTS)
    with mock.patch.object(executor_drive, "TaskContext") as context:
        context.get().attemptNumber.return_value = 1
        sent = produce_part(part)
        context.get().attemptNumber.return_value = ATTEMPTS
        with pytest.raises(
            RuntimeError, match="the Spark executor of this producer was lost 8 times"
        ):
            produce_part(part)
    assert sent.counts == {"sent": 5, "acked": 0, "failed": 0, "unknown": 5}
    (tmp_path / "returned").mkdir()
    for name, content in sent.chunks:
        (tmp_path / "returned" / name).write_bytes(content)
    assert ledger.index(tmp_path / "returned").producers == {3 * ATTEMPTS + 1}


def test_records_of_lost_attempt_are_unreported(tmp_path: Path) -> None:
    sent, read = agreeing()
    lost = [replace(one, producer=7 + one.partition, offset=one.offset + 10) for one in read]
    found = examined(tmp_path, sent, [*read, *lost], {0: (0, 20), 1: (0, 20)}).counts
    assert (found.read, found.unreported) == (40, 20)
    assert (found.lost, found.duplicated, found.out_of_order, found.gaps) == (0, 0, 0, 0)


def test_extract_holds_rows_of_its_range_only(tmp_path: Path) -> None:
    sent, _ = agreeing()
    write_ledger(tmp_path / "ledger", sent)
    (tmp_path / "sent").mkdir()
    groups = ledger.index(tmp_path / "ledger").of(1)
    (tmp_path / "sent" / "rows.parquet").write_bytes(ledger.extract(groups, 4, 8))
    rows = ledger.read(ledger.index(tmp_path / "sent").groups)
    assert sorted(rows.offset.tolist()) == [4, 5, 6, 7]
    assert set(rows.producer.tolist()) == {1}
    assert ledger.index(tmp_path / "sent").of(1)


def test_rpc_of_pods_is_encrypted_by_mounted_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "spark-sql-kafka-0-10_2.13-4.jar").touch()
    monkeypatch.setenv(session.JARS_VARIABLE, str(tmp_path))
    monkeypatch.setenv(session.POD_IP_VARIABLE, "fd00::7")
    monkeypatch.setenv(session.POD_NAME_VARIABLE, "check-driver-x")
    options = session.pod_options("check", RUNNER, PODS)
    assert options["spark.network.crypto.enabled"] == "true"
    assert options["spark.authenticate.secret.file"] == PODS.secret
    assert "spark.authenticate.secret" not in options
    assert options["spark.executor.maxNumFailures"] == "16", "two of them, killed again and again"
    assert options["spark.driver.host"] == options["spark.driver.bindAddress"] == "[fd00::7]"
    assert options["spark.kubernetes.driver.pod.name"] == "check-driver-x"


def test_failed_task_is_told_by_its_error() -> None:
    lost = (
        "Job aborted due to stage failure: Task 0 failed 4 times: ExecutorLostFailure (executor 1)"
    )
    raised = (
        "Job aborted: org.apache.spark.api.python.PythonException: Traceback (most recent call "
        'last):\n  File "worker.py", line 1, in main\nRuntimeError: the Spark executor of '
        "this producer was lost 8 times\n"
        "\n\tat org.apache.spark.api.python.BasePythonRunner\nDriver stacktrace:"
    )
    assert cause(f"{lost}\nDriver stacktrace:") == lost
    assert cause(raised) == "RuntimeError: the Spark executor of this producer was lost 8 times"
