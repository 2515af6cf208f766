"""Volumes on a real server: they outlive sandboxes, restarts and kills, move with a backup, and end when deleted."""

import json
import os
import signal
import subprocess
import sys

import pytest
from live_platform import QuickPlatform
from places import SUPPORT

from aliquot.live.node.isolation import choose, probe
from aliquot.testing.client import to_pairs
from aliquot.testing.waiting import wait_until

CODE = """
import os, time
def main(args):
    path = os.path.join(os.environ['ALIQUOT_VOLUMES'], 'models', args.get('name', 'x'))
    if 'write' in args:
        with open(path, 'w') as file:
            file.write(args['write'])
    while args.get('wait'):
        time.sleep(0.01)
    try:
        with open(path) as file:
            return {'found': file.read()}
    except OSError as error:
        return {'found': error.strerror}
"""


@pytest.fixture
def platform(tmp_path):
    if not choose(probe(tmp_path)).views:
        pytest.skip("this machine has no views")
    with QuickPlatform(tmp_path) as platform:
        platform.aliquot("volume", "create", "models", "--size", "1MiB")
        deploy(platform)
        yield platform


def deploy(platform):
    platform.deploy("uses", CODE, annotations=to_pairs({"volumes": ["models"]}))


def call(platform, **args):
    with platform.client() as client:
        return client.result("uses", args)["found"]


def test_files_outlive_the_sandbox_a_restart_and_a_kill(platform):
    assert call(platform, write="one") == "one"
    deploy(platform)  # another revision, and another sandbox
    assert call(platform) == "one"
    platform.stop()
    platform.start()
    assert call(platform, name="y", write="two") == "two"
    platform.kill()
    platform.start()
    assert (call(platform), call(platform, name="y")) == ("one", "two")
    (listed,) = platform.json("volume", "list")
    assert (listed["name"], listed["size"], listed["used"], listed["functions"]) == ("models", 2**20, 8192, ["uses"])


def test_a_killed_storage_agent_loses_no_file_and_the_same_sandbox_goes_on(platform):
    assert call(platform, write="one") == "one"
    (agent,) = (pid for pid in platform.descendants() if b"storage.agent" in command_of(pid))
    os.kill(agent, signal.SIGKILL)
    assert call(platform, name="y", write="two") == "two"
    assert call(platform) == "one"


@pytest.mark.skipif(os.geteuid() != 0, reason="it needs root to become another user")
def test_a_server_of_an_ordinary_user_has_volumes_too(tmp_path):
    wanted = f"{__file__}::{test_files_outlive_the_sandbox_a_restart_and_a_kill.__name__}"
    command = [sys.executable, SUPPORT / "as_ordinary_user.py", tmp_path, sys.executable, "-m", "pytest"]
    command += ["-p", "no:cacheprovider", f"--basetemp={tmp_path}/there", wanted]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "s" not in done.stdout.split()[0]  # it was not skipped


def command_of(pid):
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:  # noqa: PTH123 - a process may end at any time
            return file.read()
    except OSError:
        return b""


def test_a_volume_deleted_under_a_running_function_is_gone_and_its_name_is_free(platform):
    call(platform, write="one")
    assert "is named by uses" in platform.aliquot("volume", "delete", "models", "--yes", code=6)
    with platform.client() as client:
        started = client.post("actions/uses", json={"wait": True}).json()["activationId"]
        wait_until(
            lambda: platform.operate("GET", "status"),
            lambda status: any(flow["in_flight"] for flow in status["flows"]),
            what="the run",
        )
        platform.aliquot("volume", "delete", "models", "--yes", "--force")
        client.delete(f"activations/{started}")
        record = client.call("uses", {})
    assert "namespace guest has no volume 'models'" in record["response"]["result"]["error"]
    wait_until(lambda: not list((platform.data / "volumes").glob("[0-9a-f]*")), what="the end of the files")
    platform.aliquot("volume", "create", "models")
    assert call(platform) == "No such file or directory"


def test_a_backup_has_the_volumes_with_all_their_files(platform, tmp_path):
    folder = tmp_path / "tree"
    (folder / "deep").mkdir(parents=True)
    (folder / ".hidden").write_bytes(bytes(range(256)))
    (folder / "deep" / "empty").touch()
    platform.aliquot("volume", "put", "models", "tree")
    call(platform, write="one")
    platform.aliquot("backup", "all.tar.gz")
    platform.aliquot("volume", "rm", "models", "x")
    platform.stop()
    platform.aliquot("restore", "all.tar.gz", "--data", str(tmp_path / "moved"))
    platform.data.rename(tmp_path / "old")
    (tmp_path / "moved").rename(platform.data)
    platform.start()
    assert call(platform) == "one"
    platform.aliquot("volume", "get", "models", "tree", "back")
    assert (tmp_path / "back" / ".hidden").read_bytes() == bytes(range(256))
    assert (tmp_path / "back" / "deep" / "empty").read_bytes() == b""


def test_large_files_go_in_parts_and_a_full_volume_says_so(platform, tmp_path):
    platform.aliquot("volume", "create", "models", "--size", "24MiB", "--overwrite")
    content = os.urandom(20 * 2**20 + 5)
    (tmp_path / "big").write_bytes(content)
    platform.aliquot("volume", "put", "models", "big", "a/b/big")
    platform.aliquot("volume", "get", "models", "a/b/big", "again")
    assert (tmp_path / "again").read_bytes() == content
    assert [one["name"] for one in platform.json("volume", "ls", "models", "a/b")] == ["big"]
    assert "the volume is full: " in platform.aliquot("volume", "put", "models", "big", code=6)
    assert "there is no nothing" in platform.aliquot("volume", "get", "models", "nothing", code=5)
    assert json.loads(platform.aliquot("volume", "rm", "models", "a", "-r", "--json")) == {"removed": 3}
    assert platform.json("volume", "show", "models")["used"] == 0


def test_sizes_and_counts_of_a_namespace_are_limited(platform):
    too_large = platform.aliquot("volume", "create", "huge", "--size", "1TiB", code=6)
    assert "all together may have 21474836480" in too_large
    platform.aliquot("namespace", "set", "guest", "--volume-size", "2TiB")
    platform.aliquot("volume", "create", "huge", "--size", "1TiB")
    assert "cannot name a volume" in platform.aliquot("volume", "create", "a b", code=6)
