"""House rules that a linter does not know, checked over every Python file in the tree."""

import ast
import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
FUNCTION_LINES_MAX = 70
MODULE_LINES_MAX = 800
PARAMETERS_MAX = 6
COLUMNS_MAX = 100
TEST_NAME_WORDS_MAX = 8
"""Of a test's name, after `test`: component, condition, outcome."""
CLASS_LINES_MAX = 800
"""With all that it inherits from its own package: a class cut into a chain is one class."""
MARKDOWN_WORDS_MAX = 60_000
"""Of all pages together."""


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
PACKAGES = sorted({part for path in PYTHON for part in path.parts if part.startswith("plimsoll_")})
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


def is_command(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Of a command line: a parameter is an option there, and nobody calls it."""
    calls = [one.func for one in function.decorator_list if isinstance(one, ast.Call)]
    return any(isinstance(one, ast.Attribute) and one.attr == "command" for one in calls)


def is_anonymous(annotation: ast.expr | None) -> bool:
    """A tuple of so many values, each with a meaning that only its place tells."""
    if isinstance(annotation, ast.BinOp):
        return is_anonymous(annotation.left) or is_anonymous(annotation.right)
    if not isinstance(annotation, ast.Subscript) or ast.unparse(annotation.value) != "tuple":
        return False
    parts = annotation.slice.elts if isinstance(annotation.slice, ast.Tuple) else []
    return not (parts and isinstance(parts[-1], ast.Constant) and parts[-1].value is Ellipsis)


def anonymous_tuples(tree: ast.Module) -> list[str]:
    """Parameters that hold several values under one name, to stay below the number of six."""
    found = []
    for function in functions(tree):
        arguments = function.args
        every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        every += [one for one in (arguments.vararg, arguments.kwarg) if one is not None]
        found += [
            f"{function.name}({one.arg}: {ast.unparse(one.annotation)})"
            for one in every
            if one.annotation is not None and is_anonymous(one.annotation)
        ]
    return found


@dataclass(frozen=True)
class ClassSource:
    """A class of a module, and the names of its bases."""

    path: Path
    lines: int
    bases: tuple[str, ...]


def classes_of(sources: Mapping[Path, str]) -> dict[str, ClassSource]:
    """By name; of one package, where no two have the same."""
    return {
        node.name: ClassSource(
            path,
            (node.end_lineno or node.lineno) - node.lineno + 1,
            tuple(ast.unparse(base).rpartition(".")[2] for base in node.bases),
        )
        for path, text in sources.items()
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.ClassDef)
    }


def lines_with_bases(name: str, classes: Mapping[str, ClassSource]) -> int:
    seen, left = set(), [name]
    while left:
        one = left.pop()
        if one in classes and one not in seen:
            seen.add(one)
            left += classes[one].bases
    return sum(classes[one].lines for one in seen)


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


def test_modules_keep_to_the_house_rules() -> None:
    """Their numbers, constants that are stated once, docstrings that say what they are for."""
    found = [f"{path.relative_to(ROOT)}: {one}" for path in PYTHON for one in faults_of(path)]
    assert not found, "\n".join(found)


def faults_of(path: Path) -> list[str]:
    text = path.read_text()
    lines, tree = text.splitlines(), ast.parse(text)
    faults = [f"{name} is stated twice" for name in stated_twice(tree)]
    if not ast.get_docstring(tree) and (path.name != "__init__.py" or text.strip()):
        faults.append("no module docstring")
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
    for function in functions(tree):
        length = (function.end_lineno or function.lineno) - function.lineno + 1
        if length > FUNCTION_LINES_MAX:
            faults.append(f"{function.name}: {length} lines")
        words = len(function.name.split("_")) - 1
        if is_test and function.name.startswith("test_") and words > TEST_NAME_WORDS_MAX:
            faults.append(f"{function.name}: {words} words")
        if not is_test and not is_command(function) and parameters(function) > PARAMETERS_MAX:
            faults.append(f"{function.name}: {parameters(function)} parameters")
    return faults


def test_parameters_of_the_product_are_no_anonymous_tuples() -> None:
    found = {
        str(path.relative_to(ROOT)): anonymous
        for path in product()
        if (anonymous := anonymous_tuples(ast.parse(path.read_text())))
    }
    assert not found, f"name what is bundled (NamedTuple), or pass it apart: {found}"


@pytest.mark.parametrize("annotation", ["tuple[int, str]", "None | tuple[int, str]", "tuple[int]"])
def test_anonymous_tuple_is_found_in_parameters(annotation: str) -> None:
    shapes = ("a: {}", "a: int, *, b: {}", "a: {}, /", "*a: {}", "**a: {}")
    for shape in shapes:
        tree = ast.parse(f"def f({shape.format(annotation)}): pass")
        assert len(anonymous_tuples(tree)) == 1, shape
        assert anonymous_tuples(ast.parse(f"def f({shape.format('tuple[int, ...]')}): pass")) == []


@pytest.mark.parametrize("package", PACKAGES)
def test_classes_with_bases_fit_a_module(package: str) -> None:
    sources = {path: path.read_text() for path in product() if package in path.parts}
    classes = classes_of(sources)
    long = {
        name: lines
        for name in classes
        if (lines := lines_with_bases(name, classes)) > CLASS_LINES_MAX
    }
    assert sources
    assert not long, f"one class, cut to fit: {long}"


def test_inherited_lines_are_counted_once() -> None:
    text = "class A:\n    a = 1\nclass B(A):\n    b = 1\nclass C(m.A, B, Other):\n    c = 1\n"
    classes = classes_of({Path("m.py"): text})
    assert [lines_with_bases(name, classes) for name in "ABC"] == [2, 4, 6]


def test_operator_folder_does_not_shadow_the_standard_library() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists()
    assert not (ROOT / "tests" / "operator").exists()
    assert not list((ROOT / "tests").rglob("__init__.py"))


def test_product_modules_are_all_imported() -> None:
    """A module that is never imported, run or tested is dead."""
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
    assert not dead, f"never imported: {dead}"


def test_product_classes_have_distinct_names() -> None:
    """But for the resources' own words (`api/`) and Spark's jobs, which stand apart."""
    places: dict[str, list[str]] = {}
    for path in product(but=("spark", "api")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                where = f"{path.relative_to(ROOT)}:{node.lineno}"
                places.setdefault(node.name, []).append(where)
    twice = {name: found for name, found in places.items() if len(found) > 1}
    assert not twice, twice


CLASS_LINES_NAMED = 60
"""A class of so many lines names its module."""
STEM = 4
"""Words that begin with the same letters are one: *dial*ling and *Dial*ler."""


def inside_package(path: Path) -> tuple[str, ...]:
    """Return the package, the folders and the module's name."""
    parts = path.relative_to(ROOT).with_suffix("").parts
    first = next(n for n, part in enumerate(parts) if part.startswith("plimsoll_"))
    return parts[first:]


def stems(name: str) -> set[str]:
    """Return how the words of a name begin, whether it is written with capitals or underlines."""
    return {word.lower()[:STEM] for word in re.findall(r"[A-Z]?[a-z0-9]+|[A-Z]+", name)}


def main_class(tree: ast.Module) -> str | None:
    """Return the largest public class, if it has enough lines to name the module."""
    lines = {
        node.name: (node.end_lineno or node.lineno) - node.lineno + 1
        for node in tree.body
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_")
    }
    largest = max(lines, key=lambda name: lines[name], default=None)
    return largest if largest and lines[largest] >= CLASS_LINES_NAMED else None


def loggers(tree: ast.Module) -> list[str]:
    """Return the loggers of its own that a module asks for by name."""
    return [
        node.args[0].value
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "logging.getLogger"
        if node.args and isinstance(node.args[0], ast.Constant)
        if isinstance(node.args[0].value, str) and node.args[0].value.startswith("plimsoll")
    ]


CLASSES_NAMED_OTHERWISE: set[str] = {
    "plimsoll_core/cluster/model",
    "plimsoll_core/errors",
    "plimsoll_sim/checkers/acked_and_read",
    "plimsoll_sim/environment/api_server_faults",
    "plimsoll_sim/environment/send_buffers",
    "plimsoll_sim/hosts/clients",
    "plimsoll_sim/oracle/committed",
    "plimsoll_sim/scenario/held_messages",
    "plimsoll_sim/scenario/scripted_clients",
    "plimsoll_spark/producer",
}
"""Modules whose main class has another name; this list only shrinks."""
LOGGERS_NAMED_OTHERWISE: set[str] = set()
"""Modules whose logger has another name; this list only shrinks."""


def test_modules_are_named_after_their_main_class() -> None:
    found = {
        "/".join(inside_package(path)): name
        for path in product()
        if (name := main_class(ast.parse(path.read_text())))
        and not stems(name) & stems(path.stem)
        and path.stem not in name.lower()  # a kind, such as `logcluster`
    }
    new = {path: name for path, name in found.items() if path not in CLASSES_NAMED_OTHERWISE}
    assert not new, f"give the module and its largest class one noun: {new}"
    assert found.keys() >= CLASSES_NAMED_OTHERWISE, "take what is well named off the list"


def test_loggers_are_named_after_module_or_folder() -> None:
    """A line of the log then leads to the file that wrote it."""
    found = set()
    for path in product():
        places = [stems(place.removeprefix("plimsoll_")) for place in inside_package(path)]
        for logger in loggers(ast.parse(path.read_text())):
            own = stems(logger.rpartition(".")[2].removeprefix("plimsoll_"))
            if logger != "plimsoll" and not any(own <= place for place in places):
                found.add("/".join(inside_package(path)))
    assert not found - LOGGERS_NAMED_OTHERWISE, found - LOGGERS_NAMED_OTHERWISE
    assert found >= LOGGERS_NAMED_OTHERWISE, "take what is well named off the list"


def test_names_of_one_noun_are_found() -> None:
    assert stems("plimsoll.replica_manager") >= stems("ReplicaManager")
    assert stems("dialling") == stems("Dialler") != stems("Sender")
    large = "class Large:\n" + " a = 1\n" * CLASS_LINES_NAMED
    assert main_class(ast.parse("class Small:\n a = 1\n" + large)) == "Large"
    assert main_class(ast.parse("class Small:\n a = 1\n")) is None
    assert loggers(ast.parse("a = logging.getLogger('plimsoll.a')\nlogging.getLogger()")) == [
        "plimsoll.a"
    ]


def numbers_joined(tree: ast.Module) -> list[int]:
    """Lines that write a list of numbers for a reader: `", ".join(map(str, …))` and the like."""
    lines = []
    for node in ast.walk(tree):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Constant(value=", "), attr="join"), args=[values]
            ):
                inner = values.elt if isinstance(values, ast.GeneratorExp | ast.ListComp) else None
                turned = inner or (values.args[0] if isinstance(values, ast.Call) else values)
                if "str" in (ast.unparse(turned), ast.unparse(turned).partition("(")[0]):
                    lines.append(node.lineno)
    return lines


def test_lists_of_brokers_are_written_once() -> None:
    homes = {
        path.name
        for path in product(but=("plimsoll_sim", "plimsoll_spark", "memory"))
        if numbers_joined(ast.parse(path.read_text()))
    }
    assert homes == {"phrasing.py"}, "plimsoll_core.phrasing has brokers_text and replicas_text"


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


def test_handlers_take_turns_by_principal() -> None:
    """A bare `asyncio.sleep(0)` lets the slices of all connections run in one turn of the loop."""
    handlers = ROOT / "broker_image" / "plimsoll_broker" / "handlers"
    homes = {p.name for p in handlers.rglob("*.py") if "asyncio.sleep(0)" in p.read_text()}
    assert homes == {"long_work.py"}, "in_turns and next_turn are there"


def test_clocks_and_dice_are_asked_through_their_modules() -> None:
    """The simulator replaces what stands there: whoever has imported the function itself goes on
    with the machine's clock, and no run of a seed is like the one before."""
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in product()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and node.module in ("time", "random", "secrets")
    ]
    assert not found, found


def test_operator_labels_are_stated_in_one_module() -> None:
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


def test_operator_branches_on_no_reason_string() -> None:
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


def test_tree_names_no_machine_and_no_registry() -> None:
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


MEANS_ABSENCE = {
    "broker_image/plimsoll_broker/node/memory_limit.py: read_text": (
        "at the start; a container may forbid to read it"
    ),
}
"""Functions that take any failure to read for a file that is not there, and why they may."""


def taken_for_absence(tree: ast.Module) -> list[str]:
    """Functions that answer None, or nothing, to every OSError of reading files: a process without
    a descriptor, or a disk that fails, would forget what the files say."""
    reads = {"open", "read_bytes", "read_text", "stat", "scandir", "listdir", "resolve", "glob"}
    found = []
    for function in functions(tree):
        for node in ast.walk(function):
            if not isinstance(node, ast.Try):
                continue
            calls = {
                ast.unparse(call.func).rpartition(".")[2]
                for statement in node.body
                for call in ast.walk(statement)
                if isinstance(call, ast.Call)
            }
            for handler in node.handlers:
                kinds = "" if handler.type is None else ast.unparse(handler.type)
                last = handler.body[-1]
                silent = isinstance(last, ast.Pass | ast.Continue) or (
                    isinstance(last, ast.Return) and (last.value is None or _empty(last.value))
                )
                any_error = re.search(r"\bOSError\b", kinds) is not None and not handler.name
                if any_error and silent and calls & reads:
                    found.append(function.name)
    return found


def _empty(value: ast.expr) -> bool:
    return ast.unparse(value) in ("None", "''", "b''", "[]", "()", "{}", "False")


def test_failure_to_read_is_never_absence() -> None:
    found = {
        f"{path.relative_to(ROOT)}: {name}"
        for path in product(but=("plimsoll_sim",))
        for name in taken_for_absence(ast.parse(path.read_text()))
    }
    assert found == set(MEANS_ABSENCE)


@pytest.mark.parametrize("answer", ["return None", "return", "pass", "return ''"])
def test_failure_taken_for_absence_is_found(answer: str) -> None:
    code = "def look(path):\n try:\n  return path.read_bytes()\n except {}:\n  " + answer
    assert taken_for_absence(ast.parse(code.format("OSError"))) == ["look"]
    assert taken_for_absence(ast.parse(code.format("(ValueError, OSError)"))) == ["look"]
    assert taken_for_absence(ast.parse(code.format("FileNotFoundError"))) == []


def test_name_of_no_file_looks_like_an_option() -> None:
    assert [path for path in tracked() if path.name.startswith("-")] == []


def test_markdown_keeps_to_its_limit_of_words() -> None:
    """A new page replaces sentences of an old one."""
    words = sum(len(path.read_text().split()) for path in tracked("*.md"))
    assert words <= MARKDOWN_WORDS_MAX


PEOPLE = re.compile(r"\b(?:who|whose|whom|whoever|nobody|somebody|everybody)\b", re.IGNORECASE)
PEOPLE_MAX = {
    "plimsoll_broker": 0,
    "plimsoll_core": 3,
    "plimsoll_net": 0,
    "plimsoll_operator": 10,
    "plimsoll_process": 0,
    "plimsoll_sim": 6,
    "plimsoll_spark": 0,
    "plimsoll_wire": 0,
}
"""How often each package says *who* and the like in its docstrings and string literals.  These
words are for people: a broker, a log or a client has a name.  The counts only shrink; where people
are meant, they stay."""


def people_named(tree: ast.Module) -> int:
    """Return how often docstrings and string literals say *who*, *whose* or *nobody*."""
    return sum(
        len(PEOPLE.findall(node.value))
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    )


@pytest.mark.parametrize("package", PACKAGES)
def test_package_says_who_no_more_often_than_recorded(package: str) -> None:
    counts = {
        str(path.relative_to(ROOT)): count
        for path in product()
        if package in path.parts and (count := people_named(ast.parse(path.read_text())))
    }
    assert sum(counts.values()) <= PEOPLE_MAX[package], f"name the component instead: {counts}"


def test_people_are_found_in_sentences() -> None:
    text = 'def f(x):\n    """Whose it is."""\n    return f"{x} is whoever asks, nobody else"\n'
    assert people_named(ast.parse(text)) == 3
    assert people_named(ast.parse("who = 'the broker'")) == 0
