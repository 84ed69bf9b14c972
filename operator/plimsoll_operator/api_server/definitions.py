"""CustomResourceDefinitions that ship with the operator, which a new server serves.

Read once per process.
"""

from __future__ import annotations

import functools

import yaml

from plimsoll_operator.kube.kube_api import Object
from plimsoll_operator.shipped_files import shipped_directory

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@functools.cache
def shipped() -> tuple[Object, ...]:
    """Return all definitions, by file name. Shared: never change them."""
    paths = sorted(shipped_directory("crds").glob("*.yaml"))
    return tuple(yaml.load(path.read_text(), Loader=_LOADER) for path in paths)
