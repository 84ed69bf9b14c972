"""How the API server is found, and how long credentials are believed."""

import base64
import logging
import stat
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes.aio.config import incluster_config
from tests.plimsoll_operator.scripted_server import scripted

from plimsoll_operator.kube import official_transport
from plimsoll_operator.kube.errors import Unavailable
from plimsoll_operator.kube.kube_api import HttpRequest
from plimsoll_operator.kube.official_transport import (
    NoCluster,
    OfficialTransport,
    find_access,
    from_kubeconfig,
)
from plimsoll_operator.process.kopf_watches import KOPF_STARTS, KopfWatches, connection

ANY = HttpRequest(method="GET", path="/version")


class Pod:
    """The files and the environment that the kubelet gives to a pod."""

    def __init__(self, path: Path, patch: pytest.MonkeyPatch) -> None:
        self.token, self.ca = path / "token", path / "ca.crt"
        self.token.write_text("first")
        self.ca.write_text("a certificate")
        for module in (incluster_config, official_transport):
            patch.setattr(module, "SERVICE_TOKEN_FILENAME", str(self.token))
        patch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(self.ca))
        patch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
        patch.setenv("KUBERNETES_SERVICE_PORT", "6443")


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Pod:
    return Pod(tmp_path, monkeypatch)


@pytest.fixture(autouse=True)
def _nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def kubeconfig(path: Path, server: str, **user: Any) -> str:
    """A kubeconfig's path; the certificate of its cluster lies beside it."""
    cluster = {"server": server, "certificate-authority": "ca.crt"}
    (path / "ca.crt").write_text("a certificate")
    text = {
        "current-context": "here",
        "contexts": [{"name": "here", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
    }
    (path / "config").write_text(yaml.safe_dump(text))
    return str(path / "config")


# --- tokens ---------------------------------------------------------------------------------------


async def test_pod_token_is_reread_after_a_minute(
    pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await find_access()
    assert await found.authorization() == "bearer first"
    pod.token.write_text("second")
    assert await found.authorization() == "bearer first", "not for every request"
    monkeypatch.setattr(official_transport, "TOKEN_SECONDS", 0)
    assert await found.authorization() == "bearer second"


async def test_kubeconfig_token_is_reread_after_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await from_kubeconfig(kubeconfig(tmp_path, "http://a:1", token="first"))
    kubeconfig(tmp_path, "http://a:1", token="second")
    assert await found.authorization() == "Bearer first"
    monkeypatch.setattr(official_transport, "TOKEN_SECONDS", 0)
    assert await found.authorization() == "Bearer second"


async def test_transport_sends_the_current_token(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(official_transport, "TOKEN_SECONDS", 0)
    async with scripted() as server:
        transport = OfficialTransport(
            await from_kubeconfig(kubeconfig(tmp_path, server.url, token="first"))
        )
        for token in ("second", "third"):
            kubeconfig(tmp_path, server.url, token=token)
            await transport.send(ANY)
        await transport.close()
    sent = [request.headers["authorization"] for request in server.received]
    assert sent == ["Bearer second", "Bearer third"]


@pytest.mark.parametrize("broken", ["empty", "gone"])
async def test_transport_sends_nothing_without_readable_credentials(
    broken: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(official_transport, "TOKEN_SECONDS", 0)
    async with scripted() as server:
        path = Path(kubeconfig(tmp_path, server.url, token="first"))
        transport = OfficialTransport(await from_kubeconfig(str(path)))
        if broken == "empty":
            path.write_text("")
        else:
            path.unlink()
        with pytest.raises(Unavailable, match="cannot reload the credentials"):
            await transport.send(ANY)
        await transport.close()
        assert server.received == []


@pytest.mark.parametrize("broken", ["empty", "gone"])
async def test_access_recovers_once_pod_token_is_readable(
    broken: str, pod: Pod, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = await find_access()
    monkeypatch.setattr(official_transport, "TOKEN_SECONDS", 0)
    if broken == "empty":
        pod.token.write_text("")
    else:
        pod.token.unlink()
    with pytest.raises(Unavailable):
        await found.authorization()
    pod.token.write_text("second")
    assert await found.authorization() == "bearer second"


# --- where the API server is ----------------------------------------------------------------------


async def test_access_is_the_pods_own_before_any_kubeconfig(
    pod: Pod, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path, "http://a:1", token="other"))
    found = await find_access()
    assert found.configuration.host == "https://[fd00::1]:6443"
    assert found.configuration.ssl_ca_cert == str(pod.ca)
    assert found.configuration.verify_ssl is True


async def test_kubeconfig_certificates_are_inline_or_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    inline = {
        "client-certificate-data": base64.b64encode(b"mine").decode(),
        "client-key-data": base64.b64encode(b"secret").decode(),
    }
    monkeypatch.setenv("KUBECONFIG", kubeconfig(tmp_path, "https://a:1", **inline))
    found = (await find_access()).configuration
    assert found.ssl_ca_cert == str(tmp_path / "ca.crt")
    assert Path(found.cert_file).read_bytes() == b"mine"
    assert Path(found.key_file).read_bytes() == b"secret"
    assert stat.S_IMODE(Path(found.key_file).stat().st_mode) == 0o600


async def test_access_without_sources_names_places_searched(tmp_path: Path) -> None:
    with pytest.raises(NoCluster, match=f"no kubeconfig at {tmp_path}/home/.kube/config"):
        await find_access()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "kubeconfig .* cannot be used"),
        ("[]", "kubeconfig .* cannot be used"),
        ("]", "kubeconfig .* cannot be used"),
        ("current-context: here", "contexts"),
        ("{current-context: here, contexts: [{name: here, context: {cluster: c}}]}", "clusters"),
    ],
    ids=["empty", "a list", "not YAML", "no contexts", "no clusters"],
)
async def test_access_by_an_unusable_kubeconfig_says_so(
    text: str, told: str, tmp_path: Path
) -> None:
    path = tmp_path / "config"
    path.write_text(text)
    with pytest.raises(NoCluster, match=told):
        await from_kubeconfig(str(path))


async def test_kubeconfig_with_missing_certificate_is_reported(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path, "https://a:1", token="t")
    (tmp_path / "ca.crt").unlink()
    with pytest.raises(NoCluster, match=r"ca\.crt"):
        await from_kubeconfig(path)


# --- kopf -----------------------------------------------------------------------------------------


async def test_kopf_connects_as_the_operator_does(pod: Pod) -> None:
    info = await connection(await find_access())
    assert info.server == "https://[fd00::1]:6443"
    assert info.as_http_headers() == {"Authorization": "bearer first"}
    assert info.ca_path == str(pod.ca)
    assert not info.insecure


async def test_kopf_connects_with_certificates_alone(tmp_path: Path) -> None:
    (tmp_path / "mine.crt").write_text("mine")
    (tmp_path / "mine.key").write_text("secret")
    path = kubeconfig(
        tmp_path, "https://a:1", **{"client-certificate": "mine.crt", "client-key": "mine.key"}
    )
    info = await connection(await from_kubeconfig(path))
    assert info.as_http_headers() == {}
    assert info.certificate_path == str(tmp_path / "mine.crt")
    assert info.private_key_path == str(tmp_path / "mine.key")


def test_kopf_does_not_warn_at_each_start(caplog: pytest.LogCaptureFixture) -> None:
    """It runs in a thread of its own, on purpose."""
    KopfWatches(None, None, None)  # type: ignore[arg-type]
    starts = logging.getLogger(KOPF_STARTS)
    starts.warning("OS signals are ignored: running not in the main thread.")
    starts.warning("Something else.")
    assert [one.getMessage() for one in caplog.records] == ["Something else."]
