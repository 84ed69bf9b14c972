"""Logs that are in service have one writer, the driver: no other module of a broker changes one."""

import ast
from collections.abc import Iterator
from pathlib import Path

from plimsoll_broker.storage.log import Log
from plimsoll_broker.storage.unsynced import Unsynced
from plimsoll_core.replica.producer_states import ProducerStates

BROKER = Path(__file__).resolve().parents[2] / "broker_image" / "plimsoll_broker"
ROOMS = ("handlers", "node", "replication", "reporting")
DRIVER = "log_writer.py"
WRITES = {
    Log: {
        *("advance_log_start", "append", "apply_retention", "begin_flush", "begin_settle"),
        *("discard_to", "distrust", "flushed", "prune_snapshots"),
        *("remove_first", "roll", "settle", "settled", "truncate_to"),
    },
    Unsynced: {"begin_names", "names_synced", "sync_names"},
    ProducerStates: {"expire"},
}
NAMES = {name for names in WRITES.values() for name in names}


def of_a_log(value: ast.expr) -> bool:
    """`log`, `….log`, and what belongs to one: `….log.unsynced`."""
    return "log" in ast.unparse(value).split(".")


def writes(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=value, attr=name) as func):
                if name in NAMES and of_a_log(value):
                    yield ast.unparse(func)
            case ast.Attribute(attr="fault", value=value, ctx=ast.Store()) if of_a_log(value):
                yield ast.unparse(node)


def found(path: Path) -> list[str]:
    return [f"{path.name}: {each}" for each in writes(ast.parse(path.read_text()))]


def test_log_writer_alone_writes_flushes_and_fails_logs() -> None:
    modules = [path for room in ROOMS for path in sorted((BROKER / room).glob("*.py"))]
    elsewhere = {each for path in modules if path.name != DRIVER for each in found(path)}
    assert not elsewhere
    (driver,) = [path for path in modules if path.name == DRIVER]
    assert len(found(driver)) > len(NAMES) // 2, "so these are what a writer calls"


def test_names_of_writes_are_those_of_a_log() -> None:
    for kind, names in WRITES.items():
        assert not [name for name in names if not hasattr(kind, name)]
