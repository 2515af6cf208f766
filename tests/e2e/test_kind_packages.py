"""The packages of OpenWhisk's kinds, installed for real by `make tests`, and what functions do not find."""

import sys
from pathlib import Path

import pytest
from sandboxes import needs_nodejs, zipped

from aliquot.live.node.kind_packages import DIRECTORY, PACKAGES, KindFolder
from aliquot.testing.server import LiveServer

INSTALLED = Path(sys.prefix) / "kinds"  # `make .venv/kinds.stamp` puts them there
IMPORT = """
import importlib

def main(args):
    found = {}
    for name in args["names"]:
        try:
            importlib.import_module(name)
            found[name] = True
        except ImportError:
            found[name] = False
    return found
"""
OF_PYTHON = ["requests", "httplib2", "bs4", "lxml.etree", "dateutil", "simplejson", "scrapy", "twisted", "kafka"]
OF_THE_SERVER = ["uvicorn", "httpx", "rich", "msgspec", "starlette", "pytest", "numpy", "pip", "setuptools"]
REQUIRE = """
const openwhisk = require('openwhisk');
function main(args) {
  return {
    client: typeof openwhisk().actions.invoke,
    redis: typeof require('redis').createClient,
    uuid: require('uuid').v4().length,
  };
}
"""
IMPORT_MODULE = "import { v4 } from 'uuid';\nexport const main = () => ({ uuid: v4().length });"


def run(server, name, code, kind, payload=None):
    annotations = [{"key": "provide-api-key", "value": True}]
    with server.client() as client:
        body = {"exec": {"kind": kind, "code": code}, "annotations": annotations}
        put = client.put(f"actions/{name}", json=body)
        assert put.status_code == 200, put.text
        return client.post(
            f"actions/{name}", params={"blocking": "true", "result": "true"}, json=payload or {}, timeout=60
        ).json()


@pytest.fixture(scope="module")
def equipped(tmp_path_factory):
    """A server whose data folder has the packages of the kinds."""
    if any(KindFolder(INSTALLED, kind).installed() is None for kind in PACKAGES):
        pytest.skip("the packages of the kinds are not installed; `make tests` installs them if it can")
    data = tmp_path_factory.mktemp("equipped")
    (data / DIRECTORY).symlink_to(INSTALLED / DIRECTORY)
    with LiveServer(data) as server:
        yield server


def test_functions_find_the_packages_of_their_kind_and_not_those_of_the_server(equipped):
    found = run(equipped, "import", IMPORT, "python:3.11", {"names": OF_PYTHON + OF_THE_SERVER})
    assert found == dict.fromkeys(OF_PYTHON, True) | dict.fromkeys(OF_THE_SERVER, False)
    assert "packages of" not in equipped.log.read_text()


@needs_nodejs
def test_nodejs_functions_find_openwhisk_redis_and_uuid(equipped):
    assert run(equipped, "require", REQUIRE, "nodejs:20") == {"client": "function", "redis": "function", "uuid": 36}
    packed = zipped({"index.js": REQUIRE + "exports.main = main;"})
    assert run(equipped, "packed", packed, "nodejs:20")["redis"] == "function"
    module = zipped({"package.json": '{"type": "module"}', "index.js": IMPORT_MODULE})
    assert run(equipped, "module", module, "nodejs:20") == {"uuid": 36}
    own = zipped({"index.js": "exports.main = () => require('uuid')", "node_modules/uuid/index.js": "exports.own = 1"})
    assert run(equipped, "own", own, "nodejs:20") == {"own": 1}


def test_without_packages_functions_find_the_standard_library_and_the_server_says_what_to_do(shared_server):
    names = [*OF_PYTHON, *OF_THE_SERVER, "json", "aliquot"]
    found = run(shared_server, "bare", IMPORT, "python:3.11", {"names": names})
    assert found == dict.fromkeys(names, False) | {"json": True, "aliquot": True}
    said = " ".join(shared_server.log.read_text().split())
    assert "packages of python:3.11: functions do not find beautifulsoup4" in said
    assert "install them with `aliquot kinds install`" in said
