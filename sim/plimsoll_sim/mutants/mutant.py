"""Defines a mutant, reads the file of mutants, and turns a process into one of them.

No file is copied or written. A function of an imported module gets its code from the edited syntax
tree, wherever the function is referenced. So all mutants are forks of one process that imported
everything once. A module that is not imported yet is compiled from the edited tree by a finder in
`sys.meta_path`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from inspect import cleandoc
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from plimsoll_sim.mutants.tree_edits import (
    Definition,
    Edit,
    EditedModule,
    Sources,
    Stale,
    apply,
    product,
)

TABLE = Path(__file__).with_name("mutants.txt")
_HEAD = re.compile(r"(?P<name>[a-z0-9-]+): (?P<noticed_by>.+?)(?:, profile (?P<profile>.+))?")
_EDIT = re.compile(r"in (?P<target>[\w.]+):(?P<pattern>.*?)\s->\s(?P<replacement>.+)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """A change of the code that removes a guard. `rule`: the rule that no longer holds.
    `noticed_by`: the scenarios, or test files, that fail. `profile`: the profile of the random runs
    that search for it (None: as their seeds choose). `rare`: why random runs do not fail with it;
    empty if they do."""

    name: str
    rule: str
    edits: tuple[Edit, ...]
    noticed_by: tuple[str, ...] = ()
    profile: str | None = None
    rare: str = ""


def read(path: Path = TABLE) -> tuple[Mutant, ...]:
    """Return the mutants of a file, in its order. The file's head explains its format."""
    text = re.sub(r"^#.*\n", "", path.read_text(), flags=re.MULTILINE)
    return tuple(_mutant(one) for one in re.split(r"\n(?=\S)", text.strip()))


def _mutant(text: str) -> Mutant:
    first, *lines = re.split(r"\n+  (?=\S)", text.rstrip())
    head = _HEAD.fullmatch(first)
    rules = [one for one in lines if not one.startswith(("in ", "rare: "))]
    edits = [_EDIT.fullmatch(one) for one in lines if one.startswith("in ")]
    if head is None or len(rules) != 1 or not edits or not all(edits):
        raise ValueError(f"not a mutant:\n{text}")
    return Mutant(
        name=head["name"],
        rule=rules[0],
        edits=tuple(Edit(one["target"], *map(_code, one.groups()[1:])) for one in edits if one),
        noticed_by=tuple(head["noticed_by"].split()),
        profile=head["profile"],
        rare=next((one[len("rare: ") :] for one in lines if one.startswith("rare: ")), ""),
    )


def _code(text: str) -> str:
    """Return the source text of one line, or of an indented block."""
    return cleandoc(text).strip()


class _Loader(SourceFileLoader):
    """A module loader that compiles the edited syntax tree and uses no cache."""

    def __init__(self, name: str, module: EditedModule) -> None:
        super().__init__(name, str(module.path))
        self._module = module

    def get_code(self, fullname: str) -> CodeType:
        return compiled(self._module)


class _Finder(MetaPathFinder):
    def __init__(self, edited: dict[Path, EditedModule]) -> None:
        self._edited = edited

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        spec = PathFinder.find_spec(fullname, path, target)
        if spec is None or spec.origin is None:
            return None
        if (edited := self._edited.get(Path(spec.origin))) is None:
            return None
        spec.loader = _Loader(fullname, edited)
        return spec


def edited_modules(mutant: Mutant, sources: Sources | None = None) -> dict[Path, EditedModule]:
    """Return the mutated modules by file. Raise Stale unless each edit has exactly one place."""
    try:
        return apply(mutant.edits, sources or product())
    except Stale as error:
        raise Stale(f"{mutant.name}: {error}") from None


def become(mutant: Mutant, sources: Sources | None = None) -> None:
    """Turn this process into the mutant."""
    imported = {file: one for one in list(sys.modules.values()) if (file := _file_of(one))}
    edited = edited_modules(mutant, sources)
    for path in edited.keys() & imported.keys():
        code = compiled(edited[path])
        for definition in edited[path].changed:
            _change(mutant, imported[path], definition, code)
    later = {path: one for path, one in edited.items() if path not in imported}
    sys.meta_path.insert(0, _Finder(later))


def _file_of(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    return Path(file) if file else None


def compiled(module: EditedModule) -> CodeType:
    code: CodeType = compile(module.tree, str(module.path), "exec", dont_inherit=True)
    return code


def _change(mutant: Mutant, module: ModuleType, definition: Definition, code: CodeType) -> None:
    """Replace the function's code by that of its definition in `code`, the compiled module."""
    found: Any = module
    for name in definition.name.split("."):
        found = vars(found).get(name)
    for function in _wrapped(found):
        if function.__code__.co_firstlineno == definition.first_line:
            function.__code__ = _code_of(definition, code)
            return
    raise Stale(f"{mutant.name}: {definition.name} was evaluated when its module was imported")


def _code_of(definition: Definition, module: CodeType) -> CodeType:
    place = (definition.name, definition.first_line)
    return next(one for one in _codes(module) if (one.co_qualname, one.co_firstlineno) == place)


def _codes(code: CodeType) -> Iterator[CodeType]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one
            yield from _codes(one)


def _wrapped(found: Any) -> Iterator[FunctionType]:
    """Yield the functions inside wrappers, such as those of a property."""
    if isinstance(found, FunctionType):
        yield found
    for name in ("__wrapped__", "__func__", "fget", "fset", "func"):
        if (inner := getattr(found, name, None)) is not None and inner is not found:
            yield from _wrapped(inner)


MUTANTS = read()
