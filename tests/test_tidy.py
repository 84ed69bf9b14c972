"""House rules that a linter does not know, checked over every Python file in the tree."""

import ast
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 400
PARAMETERS_MAX = 6
COLUMNS_MAX = 100


def tracked(*patterns: str) -> list[Path]:
    """Files that git tracks or would track; a deleted one is not a file."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *patterns],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    return sorted({ROOT / name for name in listed if (ROOT / name).is_file()})


PYTHON = tracked("*.py")
WORKPLACE = "/".join(("", "work", ""))
"""Where this tree is worked on; not spelled out, since no path of one machine is written down."""


def product(*, but: tuple[str, ...] = ()) -> Iterator[Path]:
    """Modules of the packages, without their tests and the folders that are named."""
    for path in PYTHON:
        parts = path.relative_to(ROOT).parts
        packaged = any(part.startswith("plimsoll_") for part in parts)
        if packaged and parts[0] != "tests" and not {*parts} & {*but}:
            yield path


def functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    arguments = function.args
    every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
    return len([one for one in every if one.arg not in ("self", "cls")])


def stated_twice(tree: ast.Module) -> list[str]:
    """Constants of a module: of two values the first is what is read, the second what is used."""
    seen: set[str] = set()
    twice = []
    for node in tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            if isinstance(target, ast.Name) and target.id.isupper():
                twice += [target.id] if target.id in seen else []
                seen.add(target.id)
    return twice


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_constant_is_stated_twice(path: Path) -> None:
    assert stated_twice(ast.parse(path.read_text())) == []


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: str(path.relative_to(ROOT)))
def test_module_keeps_to_the_house_numbers(path: Path) -> None:
    text = path.read_text()
    lines = text.splitlines()
    faults = []
    if len(lines) > MODULE_LINES_MAX:
        faults.append(f"{len(lines)} lines; split by decision")
    faults += [
        f"line {n}: over {COLUMNS_MAX} columns"
        for n, line in enumerate(lines, 1)
        if len(line) > COLUMNS_MAX
    ]
    faults += [
        f"line {n}: leftover {word}"
        for n, line in enumerate(lines, 1)
        for word in ("TO" + "DO", "FIX" + "ME", "XX" + "X")
        if word in line
    ]
    is_test = "tests" in path.relative_to(ROOT).parts[:1]
    for function in functions(ast.parse(text)):
        length = (function.end_lineno or function.lineno) - function.lineno + 1
        if length > FUNCTION_LINES_MAX:
            faults.append(f"{function.name}: {length} lines")
        if not is_test and parameters(function) > PARAMETERS_MAX:
            faults.append(f"{function.name}: {parameters(function)} parameters")
    assert not faults, "\n".join(faults)


@pytest.mark.parametrize("path", PYTHON, ids=lambda path: str(path.relative_to(ROOT)))
def test_product_modules_say_what_they_are_for(path: Path) -> None:
    if path.name == "__init__.py" and not path.read_text().strip():
        return
    assert ast.get_docstring(ast.parse(path.read_text())), "no module docstring"


def test_operator_folder_does_not_shadow_the_standard_library() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists()
    assert not (ROOT / "tests" / "operator").exists()
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_every_product_module_is_imported_by_something() -> None:
    """A module that nobody imports, runs or tests is dead."""
    sources = {
        path: path.read_text()
        for path in [*PYTHON, *tracked("*.sh", "*Dockerfile", "*.toml", "*.mk", "*.yaml")]
    }
    dead = []
    for path in product():
        if path.name in ("__init__.py", "__main__.py"):
            continue
        parts = path.relative_to(ROOT).parts
        first = next(n for n, part in enumerate(parts) if part.startswith("plimsoll_"))
        package, name = ".".join(parts[first:-1]), path.stem
        used = any(
            f"{package}.{name}" in text or (f"from {package} import" in text and name in text)
            for other, text in sources.items()
            if other != path
        )
        if not used:
            dead.append(f"{package}.{name}")
    assert not dead, f"imported by nobody: {dead}"


def test_no_two_product_classes_have_one_name() -> None:
    """But for the resources' own words (`api/`) and Spark's jobs, which stand apart."""
    places: dict[str, list[str]] = {}
    for path in product(but=("spark", "api")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                where = f"{path.relative_to(ROOT)}:{node.lineno}"
                places.setdefault(node.name, []).append(where)
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert not twice, twice


def test_reconcilers_leadership_and_status_read_no_date() -> None:
    """`time` is forbidden by an import contract; `datetime` reads the same clock."""
    found = []
    for path in product():
        rooms = {*path.relative_to(ROOT).parts} & {"reconcile", "status", "leadership"}
        for node in ast.walk(ast.parse(path.read_text())) if rooms else ():
            reads = ("datetime.now", "datetime.utcnow", "date.today")
            if isinstance(node, ast.Attribute) and ast.unparse(node) in reads:
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not found, found


def test_labels_and_annotations_of_the_operator_are_stated_in_one_module() -> None:
    """Selectors must match what was labelled: `api/labels.py` states every key."""
    label = re.compile(r"\b(plimsoll\.dev|kubernetes\.io)/[a-z]")
    home = ROOT / "operator/plimsoll_operator/api/labels.py"
    found = []
    for path in (ROOT / "operator").rglob("*.py"):
        tree = ast.parse(path.read_text())
        prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
        found += [
            f"{path.relative_to(ROOT)}:{node.lineno}: {node.value}"
            for node in ast.walk(tree)
            if isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in prose
            and label.search(node.value)
            and path != home
        ]
        found += [
            f"{path.relative_to(ROOT)}:{node.lineno}: a label made of GROUP"
            for node in ast.walk(tree)
            if isinstance(node, ast.JoinedStr) and "{GROUP}/" in ast.unparse(node)
            if isinstance(node.values[-1], ast.Constant)
        ]
    assert not found, "\n".join(found)


def test_the_operator_branches_on_no_reason_string() -> None:
    """A reason is what people read; what the operator does follows from an enum or a type."""
    found = []
    for path in product(but=("core", "broker_image", "sim", "spark")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Compare):
                continue
            if {type(one) for one in node.ops} <= {ast.Is, ast.IsNot}:
                continue  # of an enum, or None
            sides = [node.left, *node.comparators]
            if any(isinstance(one, ast.Attribute) and one.attr == "reason" for one in sides):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert not found, found


def test_the_tree_names_no_machine_and_no_registry() -> None:
    """Versions are pinned without index addresses, and no path of one machine is written down."""
    found = []
    for path in tracked():
        if path.suffix in (".sum", ".png", ".jar") or path == Path(__file__).resolve():
            continue
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            continue
        found += [
            f"{path.relative_to(ROOT)}: {word}"
            for word in (
                WORKPLACE,
                "pypi.org",
                "repo1.maven",
                "proxy.golang",
                "deb.debian.org",
                "/tmp/plimsoll/",
            )
            if word in text
        ]
    assert not found, "\n".join(found)
