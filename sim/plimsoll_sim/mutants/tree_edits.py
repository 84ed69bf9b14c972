"""Edits of syntax trees. An edit names a definition and a pattern in it, so that it still applies
when code is reformatted, reworded or moved to another module.

The pattern is compared as a tree. `...` in it stands for any expression, among arguments and
statements for any number of them; in the replacement it stands for the code that matched. An empty
pattern stands for the whole body of the function.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("core", "broker_image", "operator")
"""Folders of the packages that mutants may change."""
_DEFINED = re.compile(r"^ *(?:async )?def (\w+)|^(\w+)", re.MULTILINE)
_IGNORED = ("ctx", "kind", "type_comment", "type_params")


class Stale(Exception):
    """Raised if the code has changed so that a mutant's edit no longer applies. The mutant must be
    written again."""


@dataclass(frozen=True, slots=True)
class Edit:
    """An edit of the code: `pattern` is replaced by `replacement` in `target`, the name of a
    function or variable. The target's class and modules may precede the name, and must if the name
    alone is ambiguous."""

    target: str
    pattern: str
    replacement: str


@dataclass(frozen=True, slots=True)
class Definition:
    """A definition in a module. `name`: its qualified name within the module. `first_line`: its
    first line, decorators included."""

    name: str
    first_line: int
    node: ast.stmt


@dataclass(slots=True)
class Match:
    """The part of a tree that a pattern matched: one expression, or the statements of a body from
    index `at` on."""

    parent: ast.AST
    field: str
    at: int | None
    statements: int | None = None

    def replace(self, new: Sequence[ast.AST]) -> None:
        whole = getattr(self.parent, self.field)
        if self.statements is not None:
            assert self.at is not None
            old = whole[self.at : self.at + self.statements]
            whole[self.at : self.at + self.statements] = _filled(new, old)
        elif self.at is not None:
            whole[self.at] = _filled(new, [whole[self.at]])[0]
        else:
            setattr(self.parent, self.field, _filled(new, [whole])[0])


@dataclass(slots=True)
class EditedModule:
    """A module's tree after the edits, and the definitions that they changed."""

    path: Path
    tree: ast.Module
    changed: list[Definition]


class Sources:
    """The modules that edits may change, indexed by the names that they define."""

    def __init__(self, texts: dict[Path, str], root: Path) -> None:
        self.texts = texts
        self._root = root
        self._parsed: dict[Path, tuple[Definition, ...]] = {}
        self._files: dict[str, list[Path]] = {}
        for path, text in texts.items():
            for name in {one for pair in _DEFINED.findall(text) for one in pair}:
                self._files.setdefault(name, []).append(path)

    def named(self, target: str) -> Iterator[tuple[Path, Definition]]:
        """Yield the definitions that `target` may name: getter and setter share a name."""
        for path in self._files.get(target.rpartition(".")[2], ()):
            module = ".".join(path.relative_to(self._root).with_suffix("").parts)
            if path not in self._parsed:
                self._parsed[path] = tuple(_definitions(ast.parse(self.texts[path])))
            for definition in self._parsed[path]:
                if f".{module}.{definition.name}".endswith(f".{target}"):
                    yield path, definition


@cache
def product() -> Sources:
    paths = (path for folder in FOLDERS for path in (ROOT / folder).glob("plimsoll_*/**/*.py"))
    return Sources({path: path.read_text() for path in sorted(paths)}, ROOT)


def apply(edits: Sequence[Edit], sources: Sources) -> dict[Path, EditedModule]:
    """Return the edited modules by file. Raise Stale unless each edit has exactly one place."""
    modules: dict[Path, EditedModule] = {}
    for edit in edits:
        found = [
            (path, definition)
            for path, definition in sources.named(edit.target)
            for _ in _places(definition.node, edit)
        ]
        if len(found) != 1:
            where = ", ".join(path.name for path, _ in found) or "no module"
            raise Stale(f"{len(found)} places ({where}) of {edit.pattern!r} in {edit.target}")
        [(path, definition)] = found
        if path not in modules:
            modules[path] = EditedModule(path, ast.parse(sources.texts[path]), [])
        _change(modules[path], definition, edit)
    return modules


def _change(module: EditedModule, known: Definition, edit: Edit) -> None:
    definitions = {(one.name, one.first_line): one for one in _definitions(module.tree)}
    definition = definitions[known.name, known.first_line]
    _, new = _parsed(edit)
    next(_places(definition.node, edit)).replace(new)
    module.changed.append(definition)


def _definitions(scope: ast.Module | ast.ClassDef, prefix: str = "") -> Iterator[Definition]:
    for node in scope.body:
        match node:
            case ast.ClassDef():
                yield from _definitions(node, f"{prefix}{node.name}.")
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                yield Definition(prefix + node.name, first, node)
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                yield Definition(prefix + name, node.lineno, node)


def _places(root: ast.stmt, edit: Edit) -> Iterator[Match]:
    if not edit.pattern:
        assert isinstance(root, ast.FunctionDef | ast.AsyncFunctionDef)
        yield Match(root, "body", 0, len(root.body))
        return
    pattern, _ = _parsed(edit)
    whole = isinstance(pattern[0], ast.stmt)
    for parent in ast.walk(root):
        for field, value in ast.iter_fields(parent):
            if not isinstance(value, list):
                if not whole and isinstance(value, ast.expr) and _same(pattern[0], value):
                    yield Match(parent, field, None)
                continue
            for at in range(len(value)):
                if whole and _same_lists(pattern, value[at : at + len(pattern)]):
                    yield Match(parent, field, at, len(pattern))
                elif not whole and _same(pattern[0], value[at]):
                    yield Match(parent, field, at)


def _parsed(edit: Edit) -> tuple[list[ast.AST], list[ast.AST]]:
    """Parse an edit's pattern and replacement: both as expressions if that is possible, else both
    as statements."""
    try:
        if edit.pattern:
            pair = [ast.parse(one, mode="eval") for one in (edit.pattern, edit.replacement)]
            return [pair[0].body], [pair[1].body]
    except SyntaxError:
        pass
    before, after = ast.parse(edit.pattern), ast.parse(edit.replacement)
    return [*before.body], [*after.body]


def _is_any(node: object) -> bool:
    inner = node.value if isinstance(node, ast.Expr) else node
    return isinstance(inner, ast.Constant) and inner.value is ...


def _same(pattern: object, node: object) -> bool:
    if isinstance(pattern, list):
        return isinstance(node, list) and _same_lists(pattern, node)
    if not isinstance(pattern, ast.AST):
        return type(pattern) is type(node) and pattern == node
    if _is_any(pattern):
        return isinstance(node, ast.expr)
    fields = [one for one in pattern._fields if one not in _IGNORED]
    if isinstance(pattern, ast.Call) and any(_is_any(one) for one in pattern.args):
        fields.remove("keywords")
    return type(pattern) is type(node) and all(
        _same(getattr(pattern, one), getattr(node, one)) for one in fields
    )


def _same_lists(pattern: Sequence[object], nodes: Sequence[object]) -> bool:
    if not pattern:
        return not nodes
    if _is_any(pattern[0]):
        return any(_same_lists(pattern[1:], nodes[at:]) for at in range(len(nodes) + 1))
    return bool(nodes) and _same(pattern[0], nodes[0]) and _same_lists(pattern[1:], nodes[1:])


class _Filler(ast.NodeTransformer):
    def __init__(self, old: Sequence[ast.AST]) -> None:
        self._old = old

    def visit_Expr(self, node: ast.Expr) -> ast.AST | list[ast.AST]:
        if _is_any(node) and isinstance(self._old[0], ast.stmt):
            return [*self._old]
        return self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> ast.AST:
        return self._old[0] if _is_any(node) else node


def _filled(new: Sequence[ast.AST], old: Sequence[ast.AST]) -> list[ast.AST]:
    """Return the replacement, at the line of the matched code, with the matched code in place of
    each `...`."""
    filled: list[ast.AST] = []
    for node in new:
        for inner in ast.walk(node):
            ast.copy_location(inner, old[0])
        done = _Filler(old).visit(node)
        filled += done if isinstance(done, list) else [done]
    return filled
