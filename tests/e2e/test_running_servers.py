"""Commands find the servers that run on their machine, wherever these keep their data."""

import json
import os
import subprocess
import sys

import pytest

from aliquot.testing.server import LiveServer


class Home:
    """A user with nothing but a home directory."""

    def __init__(self, folder):
        self.folder = folder
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("ALIQUOT_", "XDG_"))}
        self.environment = {**kept, "HOME": str(folder), "COLUMNS": "200", "TERM": "dumb"}

    def server(self, data):
        return LiveServer(data, env=self.environment)

    def aliquot(self, *arguments, code=0, **environment):
        done = subprocess.run(
            [sys.executable, "-m", "aliquot", *map(str, arguments)],
            env={**self.environment, **environment},
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert done.returncode == code, done.stdout + done.stderr
        return done.stderr if code else done.stdout

    def listed(self):
        folder = self.folder / ".local" / "state" / "aliquot" / "servers"
        return sorted(folder.iterdir()) if folder.exists() else []


@pytest.fixture
def home(tmp_path):
    folder = tmp_path / "home"
    folder.mkdir()
    return Home(folder)


def namespaces(home, *arguments, **environment):
    found = json.loads(home.aliquot("namespace", "list", "--json", *arguments, **environment))
    return {one["name"] for one in found}


def test_commands_find_a_server_by_themselves_or_say_how_to_choose_one(home, tmp_path):
    one, two = home.server(tmp_path / "one"), home.server(tmp_path / "two")
    with one:
        one.create_namespace("first")
        assert "if no other one runs. Otherwise set ALIQUOT_DATA=" in one.log.read_text()
        assert "first" in namespaces(home)
        (entry,) = home.listed()
        assert entry.stat().st_mode & 0o077 == entry.parent.stat().st_mode & 0o077 == 0
        written = entry.read_text()
        assert one.key not in written
        assert one.operator not in written
        with two:
            said = home.aliquot("list", code=2)
            assert f"{one.data} ({one.url}), {two.data} ({two.url})" in said
            assert "set ALIQUOT_DATA" in said
            assert "first" in namespaces(home, "--data", one.data)
            assert "first" not in namespaces(home, ALIQUOT_DATA=str(two.data))
            assert "first" in namespaces(home, ALIQUOT_URL=one.url, ALIQUOT_KEY=one.key, ALIQUOT_OPERATOR=one.operator)
            with home.server(home.folder / ".aliquot") as usual:
                usual.create_namespace("usual")
                assert "commands find the server by themselves" in usual.log.read_text()
                assert "usual" in namespaces(home)
                usual.kill()
            two.kill()
        assert len(home.listed()) == 3
        assert "first" in namespaces(home), "those that were killed do not run"
    assert "no platform is known" in home.aliquot("list", code=3, HOME=str(tmp_path))


def test_a_server_whose_list_cannot_be_written_starts_and_says_what_to_set(home, tmp_path):
    (home.folder / ".local").write_text("not a folder")
    with home.server(tmp_path / "data") as server:
        said = server.log.read_text()
        assert "not on the list of running servers" in said
        assert f"On this machine set ALIQUOT_DATA={server.data} for commands." in said
        assert namespaces(home, ALIQUOT_DATA=str(server.data)) == {"guest"}
