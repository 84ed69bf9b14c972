"""Objects as the files of a local cluster hold them."""

from __future__ import annotations

import json
from typing import Any


def log_cluster(brokers: int = 3, namespace: str | None = None, **spec: Any) -> str:
    """LogCluster `main`; `spec`: what is not the default, by field."""
    metadata = {"name": "main"} if namespace is None else {"name": "main", "namespace": namespace}
    return json.dumps(
        {
            "apiVersion": "plimsoll.dev/v1alpha1",
            "kind": "LogCluster",
            "metadata": metadata,
            "spec": {"brokers": {"count": brokers}, "storage": {"size": "1Gi"}, **spec},
        }
    )
