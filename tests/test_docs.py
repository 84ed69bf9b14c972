"""What the documents name exists: a promise whose test was renamed is a promise without one."""

import re
from pathlib import Path

import pytest
from dev import contents, floors
from tests.documented_commands import KINDS, RUN_BY, commands, documents, fences
from tests.test_tidy import tracked

from plimsoll_sim.faults.fault_table import FAULTS
from plimsoll_sim.runs.profiles.profile_table import PROFILES
from plimsoll_wire.api_versions import SUPPORTED

ROOT = Path(__file__).resolve().parent.parent
DOCUMENTS = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").glob("*.md")])
NAMED = re.compile(r"`((?:tests|sim|dev|bench|examples|helm|crds)/[\w./-]*)`")
FORBIDDEN = ROOT / "tests/operator"
"""CONTRIBUTING.md says that there must be no such folder."""
LINKED = re.compile(r"\]\(([\w./-]+)\)")
ANCHORED = re.compile(r"\]\(([\w./-]*)#([\w-]+)\)")
INDEX = ROOT / "docs/README.md"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_paths_that_a_document_names_exist(document: Path) -> None:
    text = document.read_text()
    named = {ROOT / name for name in NAMED.findall(text)}
    linked = {document.parent / name for name in LINKED.findall(text)}
    missing = sorted(
        str(path.relative_to(ROOT))
        for path in named | linked
        # A scenario may be named by its number.
        if path != FORBIDDEN and not path.exists() and not list(path.parent.glob(f"{path.name}*"))
    )
    assert not missing


TRACKED = tracked()
NOTES = sorted((ROOT / "docs/design").glob("*.md"))
FILE = re.compile(r"`([\w./-]+\.(?:py|md|sh|yaml))`")
SECTION = re.compile(r'([\w./-]+\.md)(?:, "([^"]+)"| §([\d.]*\d))')
"""As modules cite: a document, a comma and a heading in quotes, or a document and §4.7."""


@pytest.mark.parametrize("note", NOTES, ids=lambda path: path.name)
def test_files_that_a_design_note_names_exist(note: Path) -> None:
    named = FILE.findall(note.read_text())
    assert not [name for name in named if not any(path.match(name) for path in TRACKED)]


def sections(document: Path) -> set[str]:
    """The headings and the numbers of what may be cited; entries of a numbered list as 7.2."""
    found: set[str] = set()
    chapter = ""
    for line in document.read_text().splitlines():
        if heading := re.match(r"#+ (?:(\d+)\. )?(.*)", line):
            chapter = heading[1] or ""
            found |= {chapter, heading[2]}
        elif entry := re.match(r"\*\*([\d.]*\d)[ .]|(\d+)\. ", line):
            found.add(entry[1] or f"{chapter}.{entry[2]}")
    return found


def test_sections_that_modules_cite_stand_in_their_documents() -> None:
    missing = []
    for path in TRACKED:
        text = " ".join(path.read_text().split()) if path.suffix == ".py" else ""
        for name, heading, number in SECTION.findall(text):
            document = ROOT / name
            if not document.exists() or (heading or number) not in sections(document):
                missing.append(f"{path.relative_to(ROOT)}: {name} {heading or number}")
    assert not missing


PROMISES = re.findall(r"^(\d+)\. (.*)$", (ROOT / "docs/guarantees.md").read_text(), re.MULTILINE)
NOTHING = ("10",)
"""acks=0 promises nothing that a fault could break."""


@pytest.mark.parametrize(("number", "sentence"), PROMISES, ids=[number for number, _ in PROMISES])
def test_guarantee_names_its_test_and_fault(number: str, sentence: str) -> None:
    if number in NOTHING:
        return
    assert re.search(r"`tests/|[Pp]redicate|random runs", sentence), "no test"
    told = re.search(r"Faults?(?: there)?: (.*)", sentence)
    if told is None:
        assert re.search(r"`tests/[^`]*`: \w", sentence), "no fault, nor what goes wrong in a test"
        return
    named = re.findall(r'"([^"]+)"', told[1])
    assert named or "Faults there" in told[0], "no fault by its name"
    assert not {name for name in named if name not in FAULTS and name not in PROFILES}


@pytest.mark.parametrize(("number", "sentence"), PROMISES, ids=[number for number, _ in PROMISES])
def test_guarantee_is_tried_by_make_test(number: str, sentence: str) -> None:
    """Predicates are those of the scenarios and of the random runs."""
    files = ["tests/plimsoll_sim/test_scenarios.py", *re.findall(r"`(tests/\S+\.py)`", sentence)]
    assert [file for file in files if "pytest.mark.long" in (ROOT / file).read_text()] == []


CLASS = re.compile(r"`([A-Z][a-z]+(?:[A-Z][a-z]+)+)[`.]")
KINDS_OF_OBJECTS = {"MetadataBatch", "MetadataRegressed", "StopServing"}
"""Named in ARCHITECTURE.md like classes: a resource, a reason and a value of a field."""
CALL = re.compile(r"^(?:\w+ = )?(?:await )?(?:replica|writer|log)\.(\w+)\(", re.MULTILINE)


def test_architecture_names_classes_and_calls_that_exist() -> None:
    page = (ROOT / "ARCHITECTURE.md").read_text()
    text = "\n".join(path.read_text() for path in TRACKED if path.suffix == ".py")
    named = set(CLASS.findall(page)) - KINDS_OF_OBJECTS
    called = set(CALL.findall(page))
    assert {"LogWriter", "CommitQueue"} <= named
    assert {"take_ready", "carry_out"} <= called
    missing = {one for one in named if not re.search(rf"^class {one}\b", text, re.MULTILINE)}
    missing |= {one for one in called if f"def {one}(" not in text}
    assert not missing


API_ROW = re.compile(r"^- ([\d, –]+?) [A-Z].*? \(([\d, –*]+)\):", re.MULTILINE)


def spans(text: str) -> list[tuple[int, int]]:
    """`0–1, 3` as [(0, 1), (3, 3)]; a version with a star is advertised only."""
    pairs = [one.split("–") for one in text.split(", ") if not one.endswith("*")]
    return [(int(pair[0]), int(pair[-1])) for pair in pairs]


def test_protocol_lists_the_apis_that_are_served() -> None:
    page = (ROOT / "docs/protocol.md").read_text()
    listed: dict[int, tuple[int, int]] = {}
    for keys, versions in API_ROW.findall(page):
        served = spans(versions)
        numbers = [key for first, last in spans(keys) for key in range(first, last + 1)]
        listed |= dict(
            zip(numbers, served * (len(numbers) if len(served) == 1 else 1), strict=True)
        )
    assert listed == {int(key): (one.first, one.last) for key, one in SUPPORTED.items()}


def test_architecture_draws_the_floors_as_the_imports_are() -> None:
    """After a move of a module: `python dev/floors.py --write`."""
    assert floors.shown() == floors.drawing(floors.graph_of_everything())


# --- what a reader types --------------------------------------------------------------------------

PAGES = documents()
SHOWN = {command for page in PAGES for command in commands(page)}
KNOWN = [command for tested in RUN_BY.values() for command in tested]
MAKEFILES = (ROOT / "Makefile", ROOT / "dev/dev.mk")
TARGET = re.compile(r"^([a-z-]+):.*##", re.MULTILINE)
NAMED_TARGET = re.compile(r"(?:`|^)make ([a-z-]+)", re.MULTILINE)


def test_documented_commands_are_each_tested() -> None:
    """Or their like: add the command to `tests/documented_commands.py`, beside its test."""
    assert SHOWN - set(KNOWN) == set(), "no test"
    assert set(KNOWN) - SHOWN == set(), "in no document"
    assert len(KNOWN) == len(set(KNOWN))


@pytest.mark.parametrize("test", RUN_BY)
def test_tests_that_run_documented_commands_exist(test: str) -> None:
    path, _, function = test.partition("::")
    assert (ROOT / path).exists()
    assert not function or f"def {function}(" in (ROOT / path).read_text()


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_fences_say_whether_they_hold_commands(page: Path) -> None:
    assert {fence.kind for fence in fences(page)} <= KINDS
    assert page.read_text().count("\n```") == 2 * len(fences(page)), "an indented or open fence"


def test_targets_of_make_that_a_document_names_exist() -> None:
    named = {name for page in PAGES for name in NAMED_TARGET.findall(page.read_text())}
    assert {"demo", "test"} <= named
    assert not named - {name for path in MAKEFILES for name in TARGET.findall(path.read_text())}


# --- finding one's way ----------------------------------------------------------------------------

CHAPTERS_MAX = 20
"""A document with more of them has contents."""


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_long_document_starts_with_its_contents(page: Path) -> None:
    """After a new heading: `python dev/contents.py --write`."""
    text = page.read_text()
    shown = contents.shown(text)
    if len(re.findall(r"^## ", text, re.MULTILINE)) > CHAPTERS_MAX:
        assert shown is not None, "no contents"
    if shown is not None:
        assert shown == contents.contents(text)


def anchors(document: Path) -> set[str]:
    headings = re.findall(r"^#+ (.*)$", document.read_text(), re.MULTILINE)
    return {contents.anchor(one) for one in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.name)
def test_headings_that_a_document_links_to_exist(page: Path) -> None:
    linked = ANCHORED.findall(page.read_text())
    assert not [
        f"{name}#{anchor}"
        for name, anchor in linked
        if anchor not in anchors(page.parent / name if name else page)
    ]


def test_index_leads_to_every_document() -> None:
    linked = {(INDEX.parent / name).resolve() for name in LINKED.findall(INDEX.read_text())}
    runbooks = ROOT / "docs/runbooks"  # its own index leads to the others
    others = {ROOT / "README.md", INDEX, *runbooks.glob("Plimsoll*.md")}
    assert {page for page in PAGES if page not in others} == linked - {
        ROOT / "tests/scenarios/README.md"
    }


def test_readme_starts_with_two_commands() -> None:
    readme = ROOT / "README.md"
    assert commands(readme) == ["make demo", "make test"]
    assert "docs/README.md" in LINKED.findall(readme.read_text())
