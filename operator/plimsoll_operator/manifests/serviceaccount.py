"""Builds the brokers' ServiceAccount. It mounts no token, since brokers never call the API
server."""

from __future__ import annotations

from plimsoll_operator.api import labels
from plimsoll_operator.api.labels import Manifest
from plimsoll_operator.kube.resources import SERVICE_ACCOUNTS
from plimsoll_operator.manifests.manifest_context import Context


def service_account(context: Context) -> Manifest:
    return SERVICE_ACCOUNTS.manifest(
        context.metadata(labels.service_account(context.name)), automountServiceAccountToken=False
    )
