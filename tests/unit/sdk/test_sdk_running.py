"""The list of running servers: who is on it, and who may read it."""

import json
import os
import subprocess
import sys

import pytest

from aliquot.sdk import running
from aliquot.sdk.errors import UsageError
from aliquot.sdk.server import find_folder


@pytest.fixture
def home(tmp_path, monkeypatch):
    for name in ("ALIQUOT_URL", "ALIQUOT_KEY", "ALIQUOT_DATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_STATE_HOME", raising=False)
    return tmp_path


def entries(home):
    folder = home / ".local" / "state" / "aliquot" / "servers"
    return sorted(folder.iterdir()) if folder.exists() else []


def write(home, **changes):
    running.add_server(str(home / "data"), "http://127.0.0.1:1")
    (path,) = entries(home)
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))
    return path


def test_a_server_is_on_the_list_from_its_start_to_its_end(home):
    assert running.list_servers() == []
    running.add_server(str(home / "data"), "http://127.0.0.1:1")
    (server,) = running.list_servers()
    assert (server.data, server.url, server.pid) == (str(home / "data"), "http://127.0.0.1:1", os.getpid())
    assert find_folder() == str(home / "data")
    running.remove_server()
    assert running.list_servers() == entries(home) == []
    running.remove_server()
    assert find_folder() == str(home / ".aliquot")


def test_only_its_owner_can_read_the_list(home):
    running.add_server(str(home / "data"), "http://127.0.0.1:1")
    (path,) = entries(home)
    assert path.stat().st_mode & 0o077 == path.parent.stat().st_mode & 0o077 == 0


def test_a_process_that_has_ended_is_no_server_and_its_file_goes_when_another_starts(home):
    code = "from aliquot.sdk import running; running.add_server('/tmp/data', 'http://127.0.0.1:2')"
    subprocess.run([sys.executable, "-c", code], check=True)
    assert len(entries(home)) == 1
    assert running.list_servers() == []
    running.add_server(str(home / "data"), "http://127.0.0.1:1")
    assert [server.pid for server in running.list_servers()] == [os.getpid()]
    assert len(entries(home)) == 1


@pytest.mark.parametrize("changes", [{"started": 1}, {"host": "another"}, {"pid": 2**22 + 1}, {"pid": "x"}])
def test_a_process_that_took_the_number_or_runs_on_another_machine_is_no_server(home, changes):
    write(home, **changes)
    assert running.list_servers() == []


def test_the_file_of_another_machine_is_kept(home):
    path = write(home, host="another")
    path.rename(path.with_name("another-1.json"))
    running.add_server(str(home / "data"), "http://127.0.0.1:1")
    assert len(entries(home)) == 2


def test_a_damaged_file_is_passed_over(home):
    write(home).write_text("{")
    assert running.list_servers() == []


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_file_of_another_user_is_passed_over(home):
    os.chown(write(home), 12345, 12345)
    assert running.list_servers() == []


def test_the_list_is_below_the_users_state_directory(home, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(home / "elsewhere"))
    running.add_server(str(home / "data"), "http://127.0.0.1:1")
    assert len(list((home / "elsewhere" / "aliquot" / "servers").iterdir())) == 1
    monkeypatch.setenv("XDG_STATE_HOME", "relative")
    assert running.list_servers() == []


def test_with_several_servers_the_error_lists_them_and_says_what_to_set(home):
    path = write(home)
    other = {**json.loads(path.read_text()), "data": "/~other", "url": "http://127.0.0.1:2"}
    path.with_name("other.json").write_text(json.dumps(other))
    listed = rf"{home}/data \(http://127.0.0.1:1\), /~other \(http://127.0.0.1:2\)"
    with pytest.raises(UsageError, match=rf"{listed}; set ALIQUOT_DATA .* ALIQUOT_URL and ALIQUOT_KEY .*--data"):
        find_folder()


def test_a_server_that_runs_in_the_default_folder_comes_first_and_one_that_has_ended_last(home):
    write(home)
    local = home / ".aliquot" / "local.json"
    local.parent.mkdir()
    local.write_text(json.dumps({"pid": os.getpid()}))
    assert find_folder() == str(home / ".aliquot")
    local.write_text(json.dumps({"pid": 2**22 + 1}))
    assert find_folder() == str(home / "data")
