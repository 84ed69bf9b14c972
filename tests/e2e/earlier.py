"""The release before, as an upgrade on Kubernetes needs it: see dev/release.sh.

`dev/tiers.py` calls this beside tests that build no images, so that those who upgrade need not wait
for it: nothing builds images at the same time, or one would load what the other has built.
"""

import subprocess
from functools import cache

from dev.kubectl import ROOT


def release(what: str) -> str:
    """What dev/release.sh prints at last."""
    command = [str(ROOT / "dev" / "release.sh"), what]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=1200)
    return done.stdout.strip().splitlines()[-1]


@cache
def earlier() -> str:
    """Return the name of the release before, such as 0.2."""
    return release("name")


if __name__ == "__main__":
    print(release("images"))
