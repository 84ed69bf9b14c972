"""The custom resources as typed values: the one source of the CRDs under `crds/`.

`logcluster`, `topic` and `verification` hold the kinds; `schema` and `crds` make the CRDs from
them; `load` reads user files.  Nothing here talks to the API server.
"""

GROUP = "plimsoll.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
