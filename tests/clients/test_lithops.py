"""Lithops, unmodified, maps a hundred calls over TLS through its OpenWhisk backend."""

import json
import os
import re
import subprocess
import sys
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from awaiting import wait_for_record
from certificate import needs_openssl, tls_options
from lithops_words import FILES
from redis_server import PYTHON, served_redis

from aliquot.testing.server import LiveServer

pytestmark = needs_openssl

HERE = Path(__file__).parent
TIMEOUT_S = 300  # a function that cannot reach the store would be waited for without an end
IMAGE = f"docker.io/lithopscloud/openwhisk-python-v{sys.version_info.major}{sys.version_info.minor}"


@pytest.fixture(scope="module")
def redis():
    with served_redis() as redis:
        yield redis


@pytest.fixture(scope="module")
def words(tmp_path_factory):
    """The address of a server with texts of words."""
    folder = tmp_path_factory.mktemp("words")
    for number in range(FILES):
        (folder / f"{number}.txt").write_text("".join(f"word{number}{index}\n" for index in range(40_000)))
    handler = partial(SimpleHTTPRequestHandler, directory=folder)
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as served:
        Thread(target=served.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{served.server_port}"
        served.shutdown()


@pytest.fixture(scope="module")
def server(tmp_path_factory, redis, words):
    folder = tmp_path_factory.mktemp("platform")
    image = f"{IMAGE}=python:3.11,lithops==3.8.0,redis==8.1.0"
    # Servers of the machine must be listed.
    egress = f"all,{redis['host']}:{redis['port']},{words.removeprefix('http://')}"
    with LiveServer(folder / "data", "--image", image, "--egress", egress, *tls_options(folder)) as server:
        yield server


def configuration(server, redis):
    return {
        "lithops": {"backend": "openwhisk", "storage": "redis", "telemetry": False},
        "openwhisk": {
            "endpoint": server.url,
            "namespace": server.namespace,
            "api_key": server.key,
            "insecure": True,
        },
        "redis": redis,
    }


def run(folder, server, *arguments, timeout_s=TIMEOUT_S, **environment):
    """Run Lithops' interpreter and return what it printed."""
    environment |= {"PATH": os.environ["PATH"], "HOME": str(folder), "TMPDIR": str(folder)}
    command = [PYTHON, *arguments]
    ran = subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=timeout_s
    )
    assert ran.returncode == 0, ran.stdout[-20_000:] + ran.stderr + server.log.read_text()[-3000:]
    return ran.stdout


@pytest.mark.long
def test_the_tests_of_lithops_itself_pass(tmp_path, server, redis, words):
    config = tmp_path / "lithops.yaml"
    config.write_text(json.dumps(configuration(server, redis)))  # JSON is YAML, too
    folder = Path(run(tmp_path, server, "-c", "import lithops.tests; print(lithops.tests.__path__[0])").strip())
    files = [folder / f"test_{name}.py" for name in ("map", "map_reduce", "call_async")]
    settings = tmp_path / "pytest.ini"
    settings.write_text("[pytest]\n")  # not those of this repository
    options = ("-c", settings, "--config", config, "--backend", "openwhisk", "--storage", "redis")
    options += ("-p", "no:cacheprovider", "-p", "lithops_words", "--show-capture=no", "-q")
    environment = {"PYTHONPATH": str(HERE), "WORDS_URL": words}
    said = run(tmp_path, server, "-m", "pytest", *files, *options, timeout_s=1800, **environment)
    assert re.search(r"\b[3-9]\d passed", said), said


def test_a_hundred_calls_are_mapped(tmp_path, server, redis):
    said = run(tmp_path, server, HERE / "lithops_map.py", json.dumps(configuration(server, redis)))
    came = json.loads(said.splitlines()[-1])
    assert came["squares"] == [x * x for x in range(100)]
    assert (came["total"], came["called"]) == (30, 144)
    assert [runtime[0] for runtime in came["runtimes"]] == [IMAGE]
    assert came["left"] == []
    assert len(set(came["ids"])) == 100
    with server.client(verify=False) as client:
        for id_ in came["ids"]:
            record = wait_for(client, id_)
            assert record["response"]["result"] == {"Execution": "Finished"}


def wait_for(client, id_):
    """Lithops has its results by way of Redis, perhaps before the activation has ended."""
    return wait_for_record(client, id_)
