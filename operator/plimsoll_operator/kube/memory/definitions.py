"""The CustomResourceDefinitions that ship with the operator: what a fresh server is told to serve.

Read once a process; in a wheel they lie inside the package, in a working tree beside it.
"""

from __future__ import annotations

import functools
from pathlib import Path

import yaml

from plimsoll_operator.kube.port import Object

_PACKAGE = Path(__file__).resolve().parent.parent.parent
_PLACES = (_PACKAGE / "crds", _PACKAGE.parent.parent / "crds")
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@functools.cache
def shipped() -> tuple[Object, ...]:
    """All of them, by file name.  Shared: never changed."""
    directory = next(place for place in _PLACES if place.is_dir())
    return tuple(
        yaml.load(path.read_text(), Loader=_LOADER) for path in sorted(directory.glob("*.yaml"))
    )
