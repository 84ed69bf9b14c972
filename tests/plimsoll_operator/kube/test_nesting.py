"""An object as deep as API servers take them is one that cannot be followed, and nothing more."""

import subprocess
import sys

import pytest

from plimsoll_operator.kube.errors import Unavailable
from plimsoll_operator.kube.kube_api import HttpRequest, decoded
from plimsoll_operator.kube.official_transport import AROUND, NESTED_MAX

READ = f"""
import json, threading
from plimsoll_operator.api.load import Unreadable, from_object
from plimsoll_operator.api.topic import Topic
from plimsoll_operator.kube.official_transport import allow_nesting
from plimsoll_operator.kube.kube_api import decoded
from plimsoll_operator.kube.kube_api import HttpRequest

allow_nesting()
deep = '{{"a":' * {NESTED_MAX} + "1" + "}}" * {NESTED_MAX}
spec = '{{"clusterRef": {{"name": "main"}}, "config": ' + deep + "}}"
body = '{{"metadata": {{"name": "deep", "namespace": "shop"}}, "spec": ' + spec + "}}"
said = []

def read():
    json.loads(body)  # as kopf does
    found = decoded(body.encode(), HttpRequest(method="GET", path="/"))
    try:
        from_object(found, Topic)
    except Unreadable as error:
        said.append(str(error))

read()
thread = threading.Thread(target=read)
thread.start()
thread.join()
print(len(said))
"""


def test_deeply_nested_topic_is_unreadable_everywhere() -> None:
    done = subprocess.run(
        [sys.executable, "-c", READ], capture_output=True, text=True, timeout=100, check=False
    )
    assert (done.returncode, done.stdout.strip()) == (0, "2"), done.stderr[-2000:]


def test_answer_that_is_deeper_is_no_answer() -> None:
    deep = b'{"a":' * (NESTED_MAX + AROUND) + b"1" + b"}" * (NESTED_MAX + AROUND)
    with pytest.raises(Unavailable):
        decoded(deep, HttpRequest(method="GET", path="/"))
