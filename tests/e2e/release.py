"""The release that end-to-end tests run on: the chart, installed from the working tree.

`dev/tiers.py` calls this once before tiers that run beside each other, which then keep the release
(KEEP_RELEASE=1): helm refuses two upgrades of one release at a time.  pytest by itself calls it by
the fixture `operator`.  The values are those of `make demo-kubernetes`: with any other, the demo
would restart the operator under the tests beside it.
"""

import os
import subprocess

from dev.kubectl import NODE, ROOT, Cluster, local_environment

SYSTEM = "plimsoll-system"


def reached() -> Cluster:
    """The local node, started when it does not run; with USE_CURRENT_CONTEXT=1 whatever kubectl's
    current context names."""
    if os.environ.get("USE_CURRENT_CONTEXT") == "1":
        return Cluster(dict(os.environ))
    subprocess.run([str(NODE), "up"], check=True, stdout=subprocess.DEVNULL)
    return Cluster(local_environment())


def install(cluster: Cluster) -> None:
    """With KEEP_RELEASE=1 it stays as it is."""
    if os.environ.get("KEEP_RELEASE") == "1":
        return
    subprocess.run([str(ROOT / "dev" / "images.sh")], check=True)
    upgrade(cluster)


def upgrade(cluster: Cluster) -> None:
    """Install the chart, or bring the release back to it."""
    cluster.run(
        "helm", "upgrade", "--install", "plimsoll", str(ROOT / "helm" / "plimsoll"),
        "--namespace", SYSTEM, "--create-namespace",
        "--values", str(ROOT / "dev" / "values-local.yaml"),
        "--set", "verification.enabled=true", "--wait", "--timeout", "180s",
        timeout_s=240,
    )  # fmt: skip


if __name__ == "__main__":
    install(reached())
