"""The wheel by itself: installed in an environment of its own, outside the checkout, it runs."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest
from tests.integration.fresh_venv import build_wheel, install_alone
from tests.integration.local_cluster import LocalCluster, consume_all, produce

from plimsoll_core.release import RELEASE

COMMAND_LIMIT_S = 300


class InstalledCluster(LocalCluster):
    """`plimsoll local` by the command that the wheel installed."""

    def __init__(self, plimsoll: Path, directory: Path, **options: object) -> None:
        super().__init__(directory, forked=False, **options)  # type: ignore[arg-type]
        self.plimsoll = plimsoll

    @property
    def command(self) -> list[str]:
        words = super().command
        return [str(self.plimsoll), *words[words.index("local") :]]


@pytest.fixture(scope="module")
def plimsoll(tmp_path_factory: pytest.TempPathFactory) -> Path:
    work = tmp_path_factory.mktemp("wheel")
    return install_alone(build_wheel(work), work / "venv")


@pytest.fixture(autouse=True)
def outside_the_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONPATH", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))


def said(*command: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, timeout=COMMAND_LIMIT_S
    )
    return done.stdout


def test_installed_command_says_its_version(plimsoll: Path) -> None:
    assert said(str(plimsoll), "version").startswith(f"plimsoll {RELEASE}.")


def test_installed_plugin_of_kubectl_says_what_it_can(plimsoll: Path) -> None:
    shown = said(str(plimsoll.with_name("kubectl-plimsoll")), "--help")
    assert all(verb in shown for verb in ("status", "why", "what-if", "adopt", "report"))


def test_installed_command_includes_jar_fetcher(plimsoll: Path, tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("bash", "dirname", "mkdir", "sha256sum"):  # no Maven
        (tools / name).symlink_to(f"/usr/bin/{name}")
    done = subprocess.run(
        [str(plimsoll), "spark-jars"],
        env={"PATH": str(tools), "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=COMMAND_LIMIT_S,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "mvn is not installed" in done.stderr
    assert (tmp_path / ".cache/plimsoll/spark-jars").is_dir()


def test_every_wheel_module_is_importable(plimsoll: Path, tmp_path: Path) -> None:
    """Nothing that they import is missing, though most commands never reach it."""
    script = tmp_path / "import_all.py"
    script.write_text(
        "import importlib, pkgutil\n"
        "for name in ('core', 'wire', 'process', 'broker', 'operator', 'sim'):\n"
        "    package = importlib.import_module(f'plimsoll_{name}')\n"
        "    for found in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "        if not found.name.endswith('__main__'):\n"
        "            print(importlib.import_module(found.name).__file__)\n"
    )
    files = said(str(plimsoll.parent / "python"), str(script)).splitlines()
    assert len(files) > 300
    assert all(Path(one).is_relative_to(plimsoll.parents[1]) for one in files)


def test_installed_cluster_takes_an_example_and_serves_clients(
    plimsoll: Path, tmp_path: Path
) -> None:
    topic = tmp_path / "orders.yaml"
    topic.write_text(said(str(plimsoll), "example", "topic-orders"))
    with InstalledCluster(plimsoll, tmp_path / "log", brokers=None, files=[topic]) as cluster:
        cluster.wait_isr("orders", 3)
        values = [f"{number}".encode() for number in range(500)]
        acked = produce(cluster.bootstrap, "orders", values)
        assert not acked.errors
        consumed = consume_all(cluster.bootstrap, "orders", 15)
        assert {value: len(places) for value, places in consumed.items()} == dict.fromkeys(
            values, 1
        )
        assert cluster.stop() == 0


def test_local_without_options_uses_current_folder(plimsoll: Path, tmp_path: Path) -> None:
    class Plain(InstalledCluster):
        """Whatever the command does when nothing is said."""

        @property
        def command(self) -> list[str]:
            return [str(self.plimsoll), "local"]

    with Plain(plimsoll, tmp_path / "plimsoll-data", brokers=None) as cluster:
        cluster.create_topic("clicks", 1)
        assert not produce(cluster.bootstrap, "clicks", [b"one"]).errors
        assert consume_all(cluster.bootstrap, "clicks", 1) == {b"one": [(0, 0)]}


def test_completion_installs_itself_and_completes_commands(plimsoll: Path, tmp_path: Path) -> None:
    # The shell is detected by its process: `true` keeps bash from replacing itself by the command.
    said("bash", "-c", f"'{plimsoll}' --install-completion; true")
    written = (tmp_path / ".bash_completions" / "plimsoll.sh").read_text()
    assert "_PLIMSOLL_COMPLETE=complete_bash" in written
    asked = {"COMP_WORDS": "plimsoll lo", "COMP_CWORD": "1", "_PLIMSOLL_COMPLETE": "complete_bash"}
    done = subprocess.run(
        [str(plimsoll)],
        env={**os.environ, **asked},
        capture_output=True,
        text=True,
        check=False,
        timeout=COMMAND_LIMIT_S,
    )
    assert done.stdout.split() == ["local"]
