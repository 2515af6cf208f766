"""The packages of OpenWhisk's kinds, installed for real by `make tests`, and what functions do not find."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from places import DOCS
from sandboxes import needs_nodejs, zipped

from aliquot.live.node.doctor import examine
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


def packages_in_doctor(data):
    return {finding.name: finding.ok for finding in examine(data) if finding.name.startswith("packages of")}


@needs_nodejs
def test_the_doctor_shows_which_kinds_have_their_packages(equipped, tmp_path):
    names = ["packages of python:3.11", "packages of nodejs:20"]
    assert packages_in_doctor(equipped.data) == dict.fromkeys(names, True)
    assert packages_in_doctor(tmp_path) == dict.fromkeys(names, False)


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


def test_functions_may_open_as_many_files_as_the_reference_says(shared_server):
    code = "import resource\ndef main(args):\n    return {'files': resource.getrlimit(resource.RLIMIT_NOFILE)[0]}"
    assert run(shared_server, "files", code, "python:3.11") == {"files": 4096}
    assert "| 1024 open files in a container | 4096 |" in (DOCS / "reference" / "openwhisk.md").read_text(
        encoding="utf-8"
    )


def aliquot(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "aliquot", *map(str, arguments)],
        env={"PATH": os.environ["PATH"], **environment}, capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


def test_an_interpreter_that_is_not_there_is_refused(tmp_path):
    done = aliquot("up", "--data", tmp_path, "--python", tmp_path / "none", HOME=str(tmp_path))
    assert done.returncode == 2
    assert "--python: there is no interpreter" in done.stdout + done.stderr


def test_the_page_lists_the_packages():
    page = (DOCS / "reference" / "sandboxes.md").read_text(encoding="utf-8")
    for kind in PACKAGES:
        listed = ", ".join(f"`{name}`" for name in KindFolder(Path(), kind).missing())
        assert f"| `{kind}` | {listed} |" in page


@needs_nodejs
def test_an_installation_without_an_index_says_so_and_leaves_nothing(tmp_path):
    nowhere = "http://127.0.0.1:9/"  # a port on which no server listens
    offline = {"PIP_CONFIG_FILE": os.devnull, "PIP_INDEX_URL": nowhere, "PIP_RETRIES": "0", "PIP_DEFAULT_TIMEOUT": "1"}
    offline |= {"npm_config_registry": nowhere, "npm_config_fetch_retries": "0", "npm_config_cache": str(tmp_path)}
    done = aliquot("kinds", "install", "--data", tmp_path / "data", HOME=str(tmp_path), **offline)
    assert done.returncode == 1
    for said in ("python:3.11: pip cannot install its packages", "nodejs:20: npm cannot install its packages"):
        assert said in done.stdout
    assert done.stdout.count("Is this machine connected to a package index?") == 2
    assert not any(KindFolder(tmp_path / "data", kind).path.exists() for kind in PACKAGES)
