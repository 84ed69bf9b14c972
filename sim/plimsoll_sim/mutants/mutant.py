"""What a mutant is, and how a process comes to run it instead of the real code.

Nothing is copied or written: a finder in `sys.meta_path` compiles the mutated text when the module
is imported.  So this module imports nothing of the project, and must be used before it is.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class Edit:
    """`old`, which must be in `file` (from the project's root) exactly once, becomes `new`."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """`rule`: what is no longer so.  `scenarios`: those that are named for it.  `profile`: what the
    random runs are about in which it is looked for (None: whatever their seeds say).  `by_chance`:
    random runs notice it, too; where they do not, that is a weakness of theirs, and told."""

    name: str
    rule: str
    edits: tuple[Edit, ...]
    scenarios: tuple[str, ...] = ()
    profile: str | None = None
    by_chance: bool = True


class Stale(Exception):
    """The code has changed: the mutant must be written anew."""


def texts(mutant: Mutant) -> dict[Path, str]:
    """The mutated files; raises Stale when a text to be replaced is not there exactly once."""
    found: dict[Path, str] = {}
    for edit in mutant.edits:
        path = ROOT / edit.file
        text = found.get(path) or path.read_text()
        if text.count(edit.old) != 1:
            raise Stale(f"{mutant.name}: {text.count(edit.old)} times in {edit.file}:\n{edit.old}")
        found[path] = text.replace(edit.old, edit.new)
    return found


class _Loader(SourceFileLoader):
    """Compiles the mutated text, past every cache."""

    def __init__(self, name: str, path: str, text: str) -> None:
        super().__init__(name, path)
        self._text = text

    def get_code(self, fullname: str) -> CodeType:
        code: CodeType = compile(self._text, self.path, "exec", dont_inherit=True)
        return code


class _Finder(MetaPathFinder):
    def __init__(self, mutated: dict[Path, str]) -> None:
        self._mutated = mutated

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target)
        text = self._mutated.get(Path(spec.origin)) if spec and spec.origin else None
        if spec is None or spec.origin is None or text is None:
            return None
        spec.loader = _Loader(fullname, spec.origin, text)
        return spec


def become(mutant: Mutant) -> None:
    """From now on this process is the mutant."""
    loaded = [name for name in sys.modules if name.startswith(("plimsoll_core", "plimsoll_wire"))]
    assert not loaded, f"too late, {loaded[0]} is imported"
    sys.meta_path.insert(0, _Finder(texts(mutant)))
