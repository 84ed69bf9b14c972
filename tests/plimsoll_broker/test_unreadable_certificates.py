"""A process without a descriptor keeps the certificate that it has read."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from plimsoll_core.security.inside import InsideMode
from plimsoll_net import inside_identity
from plimsoll_net.inside_identity import FILES, InsideFiles, InsideIdentity


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> InsideFiles:
    """Read once, and believed."""

    def identity(certificate: bytes, key: bytes, authorities: bytes) -> InsideIdentity:
        made = object.__new__(InsideIdentity)
        for name, value in (("sha256", certificate.hex()), ("authorities", ())):
            object.__setattr__(made, name, value)
        return made

    monkeypatch.setattr(inside_identity, "identity_of", identity)
    for name in FILES:
        (tmp_path / name).write_text(InsideMode.REQUIRED.value)
    made = InsideFiles(tmp_path)
    assert made.look()
    return made


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENFILE, errno.EIO])
def test_certificate_stays_when_its_files_cannot_be_read(
    files: InsideFiles, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """EMFILE was taken for "there are no files": the broker lost its controller."""
    before = files.identity

    def refused(*_: object, **__: object) -> None:
        raise OSError(number, "cannot be opened")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", refused)
        assert not files.look()
        assert files.identity is before
        assert files.required
        assert "cannot be read" in files.error
    files.look()
    assert files.error == "", "it can be read again"


def test_certificate_goes_when_its_files_are_gone(files: InsideFiles, tmp_path: Path) -> None:
    (tmp_path / FILES[0]).unlink()
    assert files.look()
    assert files.identity is None
