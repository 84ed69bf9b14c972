"""Defines a mutant, and turns a process into one.

Nothing is copied or written.  A function of a module that is imported already gets the code that
the mutated text has for it, wherever the function is known; so a hundred mutants are forks of one
process that imported everything once.  A module that is not imported yet is compiled from the
mutated text when it is, by a finder in `sys.meta_path`.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True)
class Edit:
    """`old`, which must be in `file` (from the project's root) exactly once, becomes `new`."""

    file: str
    old: str
    new: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """`rule`: the rule that no longer holds. `scenarios`: those that should notice. `profile`: the
    profile of the random runs that look for it (None: as their seeds choose). `by_chance`: random
    runs notice it, too; if they do not, that is reported as a weakness of theirs."""

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
    """Turn this process into the mutant."""
    imported = {file: one for one in list(sys.modules.values()) if (file := _file_of(one))}
    later: dict[Path, str] = {}
    for path, text in texts(mutant).items():
        if path in imported:
            _change(mutant, imported[path], path, text)
        else:
            later[path] = text
    sys.meta_path.insert(0, _Finder(later))


def _file_of(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file) if file else None


def _change(mutant: Mutant, module: ModuleType, path: Path, text: str) -> None:
    """Raises Stale for what is not the body of a function: that was run at the import."""
    before = compile(path.read_text(), str(path), "exec", dont_inherit=True)
    after = compile(text, str(path), "exec", dont_inherit=True)
    for names, old, new in _changed(before, after, ()):
        function = _function(module, names, old)
        if function is None:
            where = f"{'.'.join(names) or 'what is run'} in {path.name}"
            raise Stale(f"{mutant.name}: {where} was run when it was imported")
        function.__code__ = new


def _changed(
    before: CodeType, after: CodeType, names: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], CodeType, CodeType]]:
    """The outermost functions that differ; modules and classes that do so by themselves."""
    if _shape(before) == _shape(after):
        return
    inner = [[one for one in code.co_consts if isinstance(one, CodeType)]
             for code in (before, after)]  # fmt: skip
    whole = before.co_flags & inspect.CO_OPTIMIZED  # a function, with all that is within
    if whole or _own(before) != _own(after) or len(inner[0]) != len(inner[1]):
        yield names, before, after
        return
    for old, new in zip(*inner, strict=True):
        yield from _changed(old, new, (*names, old.co_name))


def _own(code: CodeType) -> tuple[object, ...]:
    """Return the behaviour of a code object, without line numbers and nested functions and
    classes."""
    constants = [repr(one) for one in code.co_consts if not isinstance(one, CodeType)]
    variables = (code.co_varnames, code.co_freevars, code.co_cellvars, code.co_argcount)
    return code.co_name, code.co_code, code.co_names, code.co_flags, constants, variables


def _shape(code: CodeType) -> tuple[object, ...]:
    inner = [_shape(one) for one in code.co_consts if isinstance(one, CodeType)]
    return *_own(code), inner


def _function(module: ModuleType, names: tuple[str, ...], code: CodeType) -> FunctionType | None:
    """Find a function of a module or class by its path of names, through any wrappers."""
    found: Any = module
    for name in names:
        found = vars(found).get(name)
        if found is None:
            return None
    return next((one for one in _wrapped(found) if _shape(one.__code__) == _shape(code)), None)


def _wrapped(found: Any) -> Iterator[FunctionType]:
    if isinstance(found, FunctionType):
        yield found
    for name in ("__wrapped__", "__func__", "fget", "fset", "func"):
        if (inner := getattr(found, name, None)) is not None and inner is not found:
            yield from _wrapped(inner)
