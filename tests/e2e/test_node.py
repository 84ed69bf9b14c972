"""What the rest of the end-to-end tests take for granted about the local node."""

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from dev.kubectl import Cluster, CommandFailed, wait_for

IMAGE = "localhost/python:3.11-bookworm"
WRITE_AND_READ = """
import os
path = "/data/written"
open(path, "a").write("once ")
print(open(path).read(), os.getuid(), os.stat("/data").st_gid)
try:
    open("/elsewhere", "w")
except OSError as error:
    print(error.strerror)
"""
SERVE = """
import http.server
import socket
class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"answered")
class Server(http.server.HTTPServer):
    address_family = socket.AF_INET6  # and IPv4 with it
Server(("::", 8080), Answer).serve_forever()
"""
ASK = """
import ssl, time, urllib.error, urllib.request
for url in ("http://answerer.{namespace}.svc:8080/", "https://kubernetes.default.svc/version"):
    deadline = time.monotonic() + 30
    while True:
        try:
            context = ssl.create_default_context(cafile="/ca/ca.crt")
            print(urllib.request.urlopen(url, timeout=2, context=context).status, url)
            break
        except urllib.error.HTTPError as error:
            print(error.code, url)
            break
        except OSError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)
"""

pytestmark = pytest.mark.skipif(
    os.environ.get("USE_CURRENT_CONTEXT") == "1", reason="these are about the local node"
)


def a_pod(name: str, code: str, **spec: Any) -> dict[str, Any]:
    """A pod as strict as the product's own: not root, nothing but its volumes is writable."""
    container = {
        "name": "main",
        "image": IMAGE,
        "command": ["python3", "-c", code],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}},
        "volumeMounts": spec.pop("mounts", []),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }
    security = {
        "runAsNonRoot": True,
        "runAsUser": 10001,
        "runAsGroup": 10001,
        "fsGroup": 10001,
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "automountServiceAccountToken": False,
            "securityContext": security,
            "containers": [container],
            **spec,
        },
    }


def apply(cluster: Cluster, namespace: str, *things: dict[str, Any]) -> None:
    everything = {"apiVersion": "v1", "kind": "List", "items": list(things)}
    cluster.kubectl("apply", "-n", namespace, "-f", "-", stdin=json.dumps(everything))


def phase(cluster: Cluster, namespace: str, name: str) -> str:
    pod = cluster.get("pod", name, namespace)
    assert pod is not None, f"pod {name} is gone"
    found: str = pod["status"].get("phase", "")
    assert found != "Failed", cluster.kubectl("logs", "-n", namespace, name)
    return found


def finished(cluster: Cluster, namespace: str, name: str) -> str:
    """What a pod printed, once it has succeeded."""
    wait_for(
        f"pod {name} to finish",
        lambda: phase(cluster, namespace, name) == "Succeeded" or None,
        60,
    )
    return cluster.kubectl("logs", "-n", namespace, name)


def a_claim(name: str, mode: str = "ReadWriteOnce", size: str = "1Gi") -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {"accessModes": [mode], "resources": {"requests": {"storage": size}}},
    }


def on_claim(name: str) -> dict[str, Any]:
    return {
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": name}}],
        "mounts": [{"name": "data", "mountPath": "/data"}],
    }


@pytest.mark.parametrize("mode", ["ReadWriteOnce", "ReadWriteOncePod"])
def test_restricted_pod_writes_volume_for_the_next(
    cluster: Cluster, namespace: str, mode: str
) -> None:
    apply(
        cluster,
        namespace,
        a_claim("disk", mode),
        a_pod("first", WRITE_AND_READ, **on_claim("disk")),
    )
    assert finished(cluster, namespace, "first") == "once  10001 10001\nRead-only file system\n"
    cluster.kubectl("delete", "pod", "first", "-n", namespace, "--wait=true")
    apply(cluster, namespace, a_pod("second", WRITE_AND_READ, **on_claim("disk")))
    assert finished(cluster, namespace, "second").startswith("once once  10001 10001")


def test_volume_is_local_and_goes_with_its_claim(cluster: Cluster, namespace: str) -> None:
    apply(
        cluster,
        namespace,
        a_claim("disk", "ReadWriteOncePod"),
        a_pod("writer", WRITE_AND_READ, **on_claim("disk")),
    )
    finished(cluster, namespace, "writer")
    claim = cluster.get("pvc", "disk", namespace)
    assert claim is not None
    name = claim["spec"]["volumeName"]
    volume = json.loads(cluster.kubectl("get", "pv", name, "-o", "json"))
    assert "hostPath" not in volume["spec"]
    folder = Path(volume["spec"]["local"]["path"])
    assert (folder / "written").read_text() == "once "
    cluster.kubectl("delete", "pod/writer", "pvc/disk", "-n", namespace, "--wait=true")
    wait_for("the volume's folder to go", lambda: None if folder.exists() else True, 30)
    wait_for(
        "the volume to go",
        lambda: cluster.kubectl("get", "pv", name, "--ignore-not-found") == "" or None,
        30,
    )


def test_retained_volume_outlives_its_claim(cluster: Cluster, namespace: str) -> None:
    apply(
        cluster,
        namespace,
        a_claim("disk", "ReadWriteOnce"),
        a_pod("writer", WRITE_AND_READ, **on_claim("disk")),
    )
    finished(cluster, namespace, "writer")
    claim = cluster.get("pvc", "disk", namespace)
    assert claim is not None
    name = claim["spec"]["volumeName"]
    keep = '{"spec": {"persistentVolumeReclaimPolicy": "Retain"}}'
    cluster.kubectl("patch", "pv", name, "-p", keep)
    cluster.kubectl("delete", "pod/writer", "pvc/disk", "-n", namespace, "--wait=true")
    wait_for(
        "the volume to be released",
        lambda: (
            cluster.kubectl("get", "pv", name, "-o", "jsonpath={.status.phase}") == "Released"
            or None
        ),
        30,
    )
    folder = Path(cluster.kubectl("get", "pv", name, "-o", "jsonpath={.spec.local.path}"))
    assert (folder / "written").read_text() == "once "
    cluster.kubectl("patch", "pv", name, "-p", keep.replace("Retain", "Delete"))
    wait_for("the volume's folder to go", lambda: None if folder.exists() else True, 30)


def test_service_name_resolves_and_reaches_pod(cluster: Cluster, namespace: str) -> None:
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "answerer"},
        "spec": {"selector": {"app": "answerer"}, "ports": [{"port": 8080}]},
    }
    authority = {
        "volumes": [{"name": "ca", "configMap": {"name": "kube-root-ca.crt"}}],
        "mounts": [{"name": "ca", "mountPath": "/ca"}],
    }
    asker = a_pod("asker", ASK.replace("{namespace}", namespace), **authority)
    apply(cluster, namespace, service, a_pod("answerer", SERVE), asker)
    said = finished(cluster, namespace, "asker")
    # Who does not say who he is may not read the version: 401 or 403, but from the API server.
    assert f"200 http://answerer.{namespace}.svc:8080/" in said
    assert "https://kubernetes.default.svc/version" in said


def test_root_pod_is_refused_in_restricted_namespace(cluster: Cluster, namespace: str) -> None:
    pod = a_pod("root", "print('never')")
    pod["spec"]["securityContext"]["runAsNonRoot"] = False
    with pytest.raises(CommandFailed, match=r"violates PodSecurity \"restricted"):
        apply(cluster, namespace, pod)


@pytest.mark.parametrize("tool", ["helm", "kubectl"])
def test_tools_are_on_the_nodes_path(cluster: Cluster, tool: str) -> None:
    found = shutil.which(tool, path=cluster.environment["PATH"])
    assert found is not None, f"{tool} is not installed: dev/node.sh install"
    done = subprocess.run(
        [found, "version"], env=cluster.environment, capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
