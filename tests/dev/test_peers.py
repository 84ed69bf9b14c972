"""The comparison with peers: what shares a cluster, what is stored, what the table says."""

from pathlib import Path
from typing import Any, ClassVar

import pytest
from bench.peers import comparison
from bench.peers.processor_time import Meter, Processes, Spent, since
from bench.peers.results import Results
from bench.peers.rows import ROWS, Row, Scale, of_name
from bench.peers.systems.floor import PythonFloor
from bench.peers.systems.plimsoll import Plimsoll
from bench.peers.systems.system import Kind, MissingError, System
from bench.peers.table import lines, number

SCALE = Scale(seconds=1, megabytes=1)


class Fake(System):
    """Notes what is done with it."""

    name = "Fake"
    noted: ClassVar[list[str]] = []

    def start(self) -> None:
        self.noted.append("start")

    def stop(self) -> None:
        self.noted.append("stop")

    @property
    def bootstrap(self) -> str:
        return ""

    def processes(self) -> Processes:
        return Processes(brokers=())

    def kill(self, broker: int) -> None:
        raise NotImplementedError

    def client(self) -> list[str]:
        return []

    def make_log(self, name: str, partitions: int, replicas: int) -> None:
        raise NotImplementedError


class Other(Fake):
    name = "Other"
    noted: ClassVar[list[str]] = []

    @classmethod
    def prepare(cls) -> None:
        raise MissingError("Other: install it by hand")


def a_row(name: str, value: float = 1.0, **more: Any) -> Row:
    def measure(system: System, _: Scale) -> dict[str, float]:
        assert isinstance(system, Fake)
        system.noted.append(name)
        if value < 0:
            raise TimeoutError(name)
        return {"seconds": value}

    return Row(name=name, measure=measure, shown=("seconds",), systems=("Fake", "Other"), **more)


@pytest.fixture
def results(tmp_path: Path) -> Results:
    Fake.noted, Other.noted = [], []
    return Results(tmp_path / "bench" / "results.json")


def test_rows_of_a_kind_share_a_cluster(results: Results) -> None:
    rows = [a_row("a"), a_row("b", fresh=True), a_row("c"), a_row("d", kind=Kind(tls=True))]
    comparison.Comparison(rows, SCALE, results).round([Fake])
    assert " ".join(Fake.noted) == "start a c stop start b stop start d stop"


def test_started_rows_start_their_system_themselves(results: Results) -> None:
    comparison.Comparison([a_row("a", fresh=True, starts=True)], SCALE, results).round([Fake])
    assert Fake.noted == ["a", "stop"]


def test_failed_row_leaves_the_others_measured(results: Results) -> None:
    rows = [a_row("a"), a_row("b", value=-1.0, fresh=True), a_row("c", fresh=True)]
    measured = comparison.Comparison(rows, SCALE, results)
    measured.round([Fake])
    assert [one["row"] for one in results.entries] == ["a", "c"]
    assert measured.failed == ["Fake: TimeoutError('b')"]
    assert Fake.noted.count("stop") == 3


def test_rounds_begin_with_each_system_in_turn(results: Results) -> None:
    measured = comparison.Comparison([a_row("a")], SCALE, results)
    for _ in range(2):
        measured.round([Fake, Other])
    assert [one["system"] for one in results.entries] == ["Fake", "Other", "Other", "Fake"]


def test_missing_system_is_named_and_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    assert comparison.available([Fake, Other]) == [Fake]
    assert "left out: Other: install it by hand" in capsys.readouterr().err


def test_new_entries_replace_those_of_their_row(tmp_path: Path) -> None:
    file = tmp_path / "results.json"
    results = Results(file)
    for row, value in (("a", 1.0), ("a", 3.0), ("a", 2.0), ("b", 9.0)):
        results.add(row=row, system="Fake", figures={"seconds": value, "others_cores": 0.2})
    found = Results(file)
    spread = found.spread("a", "Fake", "seconds")
    assert spread is not None
    assert (spread.least, spread.median, spread.most) == (1.0, 2.0, 3.0)
    found.forget(["a"], ["Fake"])
    assert found.spread("a", "Fake", "seconds") is None
    assert found.others_cores(["b"]) == 0.2


def test_table_has_a_line_for_each_measured_figure(results: Results) -> None:
    name = ROWS[0].name
    for ms in (0.7312, 0.8, 0.7):
        results.add(row=name, system="Plimsoll", figures={"p50_ms": ms})
    assert list(lines(results, ("Plimsoll", "Kafka")))[2:] == [
        f"| {name} | p50, ms | 0.73 (0.70–0.80) | – |"
    ]


@pytest.mark.parametrize(
    ("value", "said"), [(1234.5, "1,234"), (45.67, "45.7"), (4.567, "4.57"), (0.01234, "0.012")]
)
def test_numbers_have_three_digits_that_count(value: float, said: str) -> None:
    assert number(value) == said


def test_rows_are_found_by_their_names() -> None:
    assert len({row.name for row in ROWS}) == len(ROWS)
    assert [row.name for row in of_name(ROWS[0].name)] == [ROWS[0].name]
    assert len(of_name("ack at 1,000/s")) > 1
    assert of_name("no such row") == []


def test_floor_alone_has_as_many_nodes_as_replicas() -> None:
    assert PythonFloor.needed(Kind(replicas=1)) == Kind(replicas=1)
    assert Plimsoll.needed(Kind(replicas=1)) == Kind(replicas=3)


def test_meter_counts_processes_that_are_gone_as_nothing() -> None:
    meter = Meter(Processes(brokers=[2**22 + 1]))
    assert meter.used().brokers_s == 0.0


def test_time_of_ended_processes_is_counted_once() -> None:
    shell, old = Spent(1.0, 5.0), Spent(30.0, 0.0)
    assert since({1: shell, 2: old}, {1: Spent(1.5, 5.0), 2: Spent(32.0, 0.0)}) == 2.5
    # A child used 2 more until it ended; one that nobody saw used 4.
    assert since({1: shell, 2: old}, {1: Spent(1.0, 5.0 + 32.0 + 4.0)}) == 6.0
    # Another has waited for the child.
    assert since({1: shell, 2: old}, {1: Spent(1.5, 5.0), 3: Spent(0.5, 0.0)}) == 1.0
