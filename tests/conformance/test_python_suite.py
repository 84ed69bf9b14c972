"""confluent-kafka's own integration tests, from a checkout of its repository: no package has them.

`make conformance` runs them where it is told the checkout (`--confluent-kafka-python DIRECTORY`).
Left out are its tests of transactions, of share groups and of the schema registry.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.conformance.conftest import Peer

pytestmark = [pytest.mark.full, pytest.mark.timeout(1200)]
INSTALL_S = 300
SUITE_S = 600
PACKAGES = (
    "confluent-kafka[avro,json,protobuf,schemaregistry]",
    *("trivup", "pytest", "pytest-timeout", "pytest-asyncio", "requests-mock", "respx", "orjson"),
    "async-timeout",
)
WHAT = ("admin", "consumer", "producer", "serialization")
OUTCOME = re.compile(r"^(\S+::\S+.*?) (PASSED|FAILED|ERROR|SKIPPED)", re.MULTILINE)
FAIL_ON_BOTH = {
    "test_basic_operations": "it wants an authorizer",
    "test_describe_operations[sasl_cluster0]": "it starts a Kafka of its own",
}


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Of an environment that has what the suite imports."""
    directory = tmp_path_factory.mktemp("venv")
    subprocess.run([sys.executable, "-m", "venv", str(directory)], check=True, timeout=INSTALL_S)
    found = str(directory / "bin" / "python")
    words = ("-m", "pip", "install", "-q", "--disable-pip-version-check", *PACKAGES)
    subprocess.run([found, *words], check=True, timeout=INSTALL_S)
    return found


@pytest.mark.client("librdkafka (confluent-kafka)", "own suite")
def test_integration_tests_of_confluent_kafka_pass(
    peer: Peer, python: str, pytestconfig: pytest.Config
) -> None:
    suite = Path(pytestconfig.getoption("--confluent-kafka-python"))
    words = ("-v", "-p", "no:cacheprovider", "--timeout=120", "--tb=short")
    paths = [f"tests/integration/{name}" for name in WHAT]
    ignored = "--ignore=tests/integration/producer/test_transactions.py"
    done = subprocess.run(
        [python, "-m", "pytest", *words, ignored, *paths],
        cwd=suite,
        env={**os.environ, "BROKERS": peer.bootstrap},
        capture_output=True,
        text=True,
        timeout=SUITE_S,
        check=False,
    )
    found = {name.rpartition("::")[2]: outcome for name, outcome in OUTCOME.findall(done.stdout)}
    failed = {name for name, outcome in found.items() if outcome in ("FAILED", "ERROR")}
    if peer.name == "kafka":
        assert failed == FAIL_ON_BOTH.keys(), done.stdout
    else:
        assert failed <= FAIL_ON_BOTH.keys(), done.stdout
    assert list(found.values()).count("PASSED") >= 20, done.stdout
