"""An attacker's code in a sandbox: what it reaches of the server, of the operator and of the tenant beside it."""

import json
import os
import socket

import httpx
import pytest
from hostile_namespaces import MARK, PRIVATE, Namespace
from sandboxes import strongest

WALLS = strongest()
needs_walls = pytest.mark.skipif(not (WALLS.mount and WALLS.pid and WALLS.landlock), reason="not all walls are here")

PROBE = """
import glob, json, os, socket, urllib.error, urllib.request

def attempt(what):
    try:
        return what()
    except urllib.error.HTTPError as error:
        return error.code
    except OSError as error:
        return type(error).__name__

def connect(name):
    with socket.socket(socket.AF_UNIX) as end:
        end.connect(name)
        return 'connected'

def ask(url, **headers):
    request = urllib.request.Request(url, headers=headers)
    return urllib.request.urlopen(request, timeout=10).status

def main(args):
    key = os.environ.get('__OW_API_KEY', '')
    url = os.environ['__OW_API_HOST'] + '/operator/v1/namespaces'
    return {
        'files': {path: attempt(lambda: len(open(path, 'rb').read())) for path in args['files']},
        'folders': {path: attempt(lambda: os.listdir(path)) for path in args['folders']},
        'sockets': {name: attempt(lambda: connect(name.replace('@', chr(0)))) for name in args['sockets']},
        'operator': [attempt(lambda: ask(url)), attempt(lambda: ask(url, Authorization='Bearer ' + key))],
        'processes': sorted(int(name) for name in os.listdir('/proc') if name.isdigit()),
        'key': key,
        'environment': dict(os.environ),
    }
"""


@pytest.fixture(scope="module")
def probed(shared_server, tmp_path_factory):
    """The findings of the attacker's code while another tenant's sandbox runs beside it."""
    server = shared_server
    victim, attacker = Namespace(server, "victim"), Namespace(server, "attacker")
    victim.action("private", PRIVATE)
    folder = tmp_path_factory.mktemp("outside")
    listeners = []
    names = [str(folder / "socket"), f"@aliquot-test-{os.getpid()}"]
    for name in names:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(name.replace("@", "\0"))
        listener.listen()
        listeners.append(listener)
    (folder / "socket").chmod(0o777)
    folder.chmod(0o755)
    assert victim.result("private")[1] == {"mark": MARK}
    children = server.descendants()
    files = [server.data / name for name in ("local.json", "aliquot.db", "aliquot.db-wal", "lock")]
    files += [f"/proc/{pid}/{name}" for pid in (server.process.pid, *children) for name in ("environ", "mem", "maps")]
    folders = [server.data, server.data / "scratch", folder, f"/proc/{server.process.pid}/root"]
    attacker.action("probe", PROBE, annotations=[{"key": "provide-api-key", "value": True}])
    status, found = attacker.result(
        "probe", files=list(map(str, files)), folders=list(map(str, folders)), sockets=names
    )
    for listener in listeners:
        listener.close()
    victim.client.close()
    attacker.client.close()
    assert status == 200, found
    return found


def test_a_sandbox_is_not_the_operator(shared_server, probed):
    assert probed["key"]
    assert probed["operator"] == [401, 401]
    assert shared_server.operator not in json.dumps(probed)


def test_the_key_in_a_sandbox_opens_its_own_namespace_alone(shared_server, probed):
    auth = tuple(probed["key"].split(":"))
    answers = {
        name: httpx.get(f"{shared_server.url}/api/v1/namespaces/{name}/actions", auth=auth).status_code
        for name in ("_", "attacker", "victim", "guest")
    }
    assert answers in (
        {"_": 200, "attacker": 200, "victim": 403, "guest": 403},
        {"_": 401, "attacker": 401, "victim": 401, "guest": 401},  # its sandbox has ended, and the key with it
    )


@needs_walls
def test_a_sandbox_reaches_neither_the_servers_files_nor_other_processes(probed):
    assert set(probed["files"].values()) <= {"FileNotFoundError", "PermissionError"}, probed["files"]
    ways = (["kinds"], "FileNotFoundError", "PermissionError")  # to the environment of its kind, or none
    assert all(found in ways for found in probed["folders"].values()), probed["folders"]
    assert probed["processes"] == [1]


@needs_walls
def test_a_sandbox_reaches_no_socket_that_is_not_its_own(probed):
    assert set(probed["sockets"].values()) <= {"FileNotFoundError", "PermissionError", "ConnectionRefusedError"}


def test_a_sandbox_knows_nothing_of_its_neighbours(probed):
    text = json.dumps(probed)
    assert MARK not in text
    assert "victim" not in json.dumps(probed["environment"])
