"""Whether a position is a part of a log, told by the controller term that wrote it."""

from uuid import UUID

import pytest

from plimsoll_core.cluster.controller_terms import TERMS_MAX, Ancestry, ancestry, with_term
from plimsoll_core.cluster.image import append
from plimsoll_core.cluster.image_encoding import decode_image, encode_image
from plimsoll_core.cluster.model import ClusterImage, ControllerTerm
from plimsoll_core.cluster.records import ControllerChanged, MetadataVersionFinalized
from plimsoll_core.ids import ControllerEpoch, MetadataOffset

TERMS = (
    ControllerTerm(id="a", first_offset=MetadataOffset(10)),
    ControllerTerm(id="b", first_offset=MetadataOffset(20)),
)


@pytest.mark.parametrize(
    ("offset", "term_id", "expected"),
    [
        (15, "a", Ancestry.WITHIN),
        (20, "a", Ancestry.WITHIN),
        (21, "a", Ancestry.DIFFERENT),
        (21, "b", Ancestry.WITHIN),
        (20, "b", Ancestry.DIFFERENT),
        (15, "z", Ancestry.DIFFERENT),
        (5, "z", Ancestry.DIFFERENT),
        (10, "", Ancestry.WITHIN),
        (11, "", Ancestry.DIFFERENT),
        (15, None, Ancestry.WITHIN),
    ],
)
def test_position_is_within_only_in_its_own_term(
    offset: int, term_id: str | None, expected: Ancestry
) -> None:
    assert ancestry(TERMS, MetadataOffset(offset), term_id) is expected


def test_log_without_term_ids_accepts_positions() -> None:
    assert ancestry((), MetadataOffset(5), "") is Ancestry.WITHIN


def test_full_term_list_drops_its_oldest() -> None:
    terms: tuple[ControllerTerm, ...] = ()
    for number in range(TERMS_MAX + 1):
        terms = with_term(terms, f"t{number}", MetadataOffset(10 * number))
    assert len(terms) == TERMS_MAX
    for term_id in ("t0", "other", ""):
        assert ancestry(terms, MetadataOffset(5), term_id) is Ancestry.FORGOTTEN
    assert ancestry(terms, MetadataOffset(15), "t1") is Ancestry.WITHIN
    assert ancestry(terms, MetadataOffset(15), "other") is Ancestry.DIFFERENT


def test_image_keeps_terms_through_a_snapshot() -> None:
    image = ClusterImage(cluster_id=UUID(int=1))
    began = ControllerChanged(cause="t", controller_epoch=ControllerEpoch(1), identity="x")
    image = append(image, began)
    assert (image.terms, image.term_id) == ((), "")
    image = append(image, MetadataVersionFinalized(cause="t", metadata_version=5))
    next_term = ControllerChanged(
        cause="t", controller_epoch=ControllerEpoch(2), identity="x", term_id="b"
    )
    image = append(image, next_term)
    assert image.terms == (ControllerTerm(id="b", first_offset=MetadataOffset(2)),)
    assert image.term_id == "b"
    assert decode_image(encode_image(image)) == image


def test_term_id_waits_for_its_metadata_version() -> None:
    began = ControllerChanged(
        cause="t", controller_epoch=ControllerEpoch(1), identity="x", term_id="a"
    )
    with pytest.raises(AssertionError, match="term_id belongs to metadata version 5"):
        append(ClusterImage(cluster_id=UUID(int=1)), began)
