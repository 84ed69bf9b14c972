"""`python dev/floors.py --write`: draws the modules of some packages in layers ("floors"), by their
imports, into a document.

A module stands above all modules that it imports, directly or indirectly, and as low as that
allows. Without `--write` the script prints the drawing. A test compares it with the document.
"""

import sys
from collections.abc import Iterable
from pathlib import Path

import grimp

DOCUMENT = Path(__file__).parent.parent / "ARCHITECTURE.md"
BEGIN, END = "<!-- begin floors -->", "<!-- end floors -->"
DRAWN = (
    "plimsoll_core",
    "plimsoll_core.controller",
    "plimsoll_broker",
    "plimsoll_operator",
    "plimsoll_operator.reconcile",
    "plimsoll_sim",
    "plimsoll_sim.faults",
)
WIDTH = 96


def below(graph: grimp.ImportGraph, package: str) -> dict[str, set[str]]:
    """Return each module of a package, with those of its siblings that it imports, directly or
    indirectly."""
    rooms = sorted(graph.find_children(package))
    return {
        room: {
            other
            for other in rooms
            if other != room and graph.find_shortest_chains(room, other, as_packages=True)
        }
        for room in rooms
    }


def floors(imports: dict[str, set[str]]) -> list[list[str]]:
    """Return the layers from top to bottom. `imports`: for each module, the modules that it
    imports. Raises ValueError for a circle of imports."""
    left, built = dict(imports), []
    while left:
        floor = sorted(room for room, others in left.items() if not others & left.keys())
        if not floor:
            raise ValueError(f"a circle among {', '.join(sorted(left))}")
        built.append(floor)
        for room in floor:
            del left[room]
    return built[::-1]


def drawing(graph: grimp.ImportGraph, packages: Iterable[str] = DRAWN) -> str:
    """Return the drawing as a block of Markdown."""
    lines = ["```text"]
    for package in packages:
        lines += [package, *_drawn(package, floors(below(graph, package))), ""]
    return "\n".join([*lines[:-1], "```"])


def _drawn(package: str, rows: list[list[str]]) -> Iterable[str]:
    for row in rows:
        line = "   "
        for room in row:
            name = f" {room.removeprefix(package + '.')} "
            if len(line) + len(name) > WIDTH:
                yield line.rstrip()
                line = "   "
            line += name
        yield line.rstrip()


def graph_of_everything() -> grimp.ImportGraph:
    return grimp.build_graph(
        "plimsoll_core", "plimsoll_broker", "plimsoll_operator", "plimsoll_sim", cache_dir=None
    )


def shown() -> str:
    """Return the drawing that the document contains now."""
    return DOCUMENT.read_text().partition(BEGIN)[2].partition(END)[0].strip()


def main() -> None:
    drawn = drawing(graph_of_everything())
    print(drawn)
    if "--write" in sys.argv:
        before, _, rest = DOCUMENT.read_text().partition(BEGIN)
        DOCUMENT.write_text(f"{before}{BEGIN}\n{drawn}\n{END}{rest.partition(END)[2]}")


if __name__ == "__main__":
    main()
