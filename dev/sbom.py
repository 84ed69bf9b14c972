"""Builds software bills of materials (SBOMs) of images and of the chart, as CycloneDX 1.6 in JSON.

Called by `dev/publish.py`, which writes each beside its artefact.
"""

import json
from collections.abc import Iterable, Mapping
from pathlib import Path

from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentType
from cyclonedx.model.license import LicenseExpression
from cyclonedx.output.json import JsonV1Dot6
from packageurl import PackageURL


def image_components(rows: Iterable[Mapping[str, str]]) -> list[Component]:
    """Return the components of the rows that `dev/image_inventory.py` prints."""
    return [_component(row) for row in rows]


def _component(row: Mapping[str, str]) -> Component:
    version = row["version"]
    # A jar without a stated group has no package URL: it would name another project's.
    known = row["kind"] != "maven" or row["group"]
    group = {"deb": "debian", "maven": row.get("group")}.get(row["kind"])
    architecture = row.get("architecture")
    url = PackageURL(
        row["kind"], group, row["name"], version, {"arch": architecture} if architecture else None
    )
    licence = row.get("licence")
    return Component(
        name=row["name"],
        group=row.get("group") or None,
        version=version,
        purl=url if known else None,
        bom_ref=":".join((row["kind"], group or "", row["name"], version, architecture or "")),
        licenses=[LicenseExpression(licence)] if licence else None,
    )


def chart_components(images: Iterable[str]) -> list[Component]:
    """Return a component for each image that the chart names, by the name under which it is
    pulled."""
    found = []
    for image in sorted(images):
        name, _, tag = image.rpartition(":")
        found.append(
            Component(name=name, version=tag, type=ComponentType.CONTAINER, bom_ref=f"oci:{image}")
        )
    return found


def write_sbom(path: Path, subject: Component, components: Iterable[Component]) -> None:
    """Write an SBOM to a file. `subject`: the component that it describes; `components`: the
    contents."""
    bom = Bom(components=components)
    bom.metadata.component = subject
    bom.register_dependency(subject, list(bom.components))
    text = JsonV1Dot6(bom).output_as_string()
    path.write_text(json.dumps(json.loads(text), indent=1) + "\n")


def artefact(name: str, version: str, kind: ComponentType) -> Component:
    """Return the component that an SBOM describes: an image, or the chart."""
    return Component(name=name, version=version, type=kind, bom_ref=f"{name}:{version}")
