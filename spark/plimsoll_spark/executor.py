"""`python -m plimsoll_spark.executor executor`: the program of an executor's pod.

Becomes the JVM of a Spark executor. Spark states its settings in the environment, as it does for
the shell script of its own images, which the Python package of Spark lacks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping

from plimsoll_spark import session

BACKEND = "org.apache.spark.scheduler.cluster.k8s.KubernetesExecutorBackend"
MASTER = "-Dspark.master=k8s://"
"""Spark reads its secret from a file only if the master is Kubernetes, and does not tell executors
the master."""
OPTION_PREFIX = "SPARK_JAVA_OPT_"
STATED = (
    ("--driver-url", "SPARK_DRIVER_URL"),
    ("--executor-id", "SPARK_EXECUTOR_ID"),
    ("--cores", "SPARK_EXECUTOR_CORES"),
    ("--app-id", "SPARK_APPLICATION_ID"),
    ("--resourceProfileId", "SPARK_RESOURCE_PROFILE_ID"),
    ("--podName", "SPARK_EXECUTOR_POD_NAME"),
)
"""The backend's arguments, and the environment variables of which Spark makes them."""


def command(stated: Mapping[str, str], class_path: str) -> list[str]:
    """Return the JVM's program and arguments. `stated`: the environment variables of the pod;
    `class_path`: that of the JVM. Raises KeyError if a variable of Spark is missing."""
    names = (name for name in stated if name.startswith(OPTION_PREFIX))
    options = [stated[name] for name in sorted(names, key=_place)]
    memory = stated["SPARK_EXECUTOR_MEMORY"]
    arguments = [word for flag, name in STATED for word in (flag, stated[name])]
    address = session.bracketed(stated["SPARK_EXECUTOR_POD_IP"])
    own = ["--hostname", address, "--bind-address", address]
    return [
        str(session.java()),
        *options,
        MASTER,
        *(f"-Xms{memory}", f"-Xmx{memory}"),
        *("-cp", class_path),
        BACKEND,
        *arguments,
        *own,
    ]


def class_path() -> str:
    """Return the class path of the executor's JVM. It equals a driver's word by word, since the JVM
    ignores an archive of classes that was made with another class path."""
    home = session.spark_home()
    first = sorted(map(str, (home / "jars").glob("slf4j-api-*.jar")))
    words = [f"{session.jars_directory()}/*", "hive-jackson/*", f"{home}/conf", *first]
    return ":".join([*words, f"{home}/jars/*"])


def _place(name: str) -> int:
    return int(name.removeprefix(OPTION_PREFIX))


def main() -> None:
    """Replace this process by the executor's JVM. Raises KeyError, OSError."""
    words = command(os.environ, class_path())
    environment = {**os.environ, "SPARK_HOME": str(session.spark_home())}
    os.execve(words[0], words, environment)


if __name__ == "__main__":
    main()
