"""Runs a script or module as a release that understands one metadata version more than this one.

`python next_release.py SCRIPT …` or `python next_release.py -m MODULE …`, with `PYTHONPATH` set to
the present sources. What a release with a new metadata version does to an earlier one can thus be
tried at any time.
"""

import runpy
import sys

from plimsoll_core.cluster import record_versions

if __name__ == "__main__":
    # Before any other module of ours copies these names.
    record_versions.NEWEST += 1
    record_versions.UNDERSTOOD = (record_versions.OLDEST, record_versions.NEWEST)
    record_versions.RELEASES[record_versions.NEWEST] = "99.0"
    if sys.argv[1] == "-m":
        sys.argv[:] = sys.argv[2:]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv[:] = sys.argv[1:]
        runpy.run_path(sys.argv[0], run_name="__main__")
