"""Environments: built once for a set of requirements, shared, and honest about failures. Without a network."""

import asyncio
import os
import subprocess
import sys
from pathlib import Path

import pytest
from killed_steps import kill_at_each_step
from package_index import source_archive
from sandboxes import isolation, play, result, strongest, with_and_without_walls
from wheels import wheel

from aliquot.live.node.base import Status
from aliquot.live.node.environments.build_queue import FIRST_DELAY_S
from aliquot.live.node.environments.disk import DIRECTORY, load_marks
from aliquot.live.node.environments.errors import RequirementsError
from aliquot.live.node.environments.installer import Installer
from aliquot.live.node.environments.limits import EnvironmentLimits
from aliquot.live.node.environments.pip_settings import paths_in, pip_variables
from aliquot.live.node.environments.provider import Environments
from aliquot.live.node.isolation import NO_ISOLATION
from aliquot.live.node.network.client import MachineNetwork
from aliquot.live.node.sandbox_resources import SandboxResources

LIMITS = EnvironmentLimits()
WHERE = "import {0}\ndef main(args):\n    return {{'value': {0}.VALUE, 'file': {0}.__file__}}"


@pytest.fixture
def wheels(tmp_path, monkeypatch):
    """The operator's own package directory, instead of a network."""
    directory = tmp_path / "wheels"
    wheel(directory, "tiny", "1.0", "VALUE = 1")
    wheel(directory, "tiny", "2.0", "VALUE = 2")
    for path in (tmp_path, directory):
        path.chmod(0o755)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(directory))
    return directory


@with_and_without_walls
@pytest.mark.usefixtures("wheels")
def test_requirements_are_installed_once_and_shared(tmp_path, walls):
    told = []

    async def scene(rig):
        for number, pause in ((1, 0), (2, 0), (3, 0.1)):
            await asyncio.sleep(pause)
            assert rig.launch(WHERE.format("tiny"), requirements=("tiny==1.0",), imports=("tiny",)) == number
        started = [await rig.next() for _ in range(3)]
        assert {what for what, _, _ in started} == {"started"}, started
        for _, sandbox, _ in started:
            found = result(await rig.run(sandbox))
            assert found["value"] == 1
            assert found["file"].startswith(str(tmp_path / "data" / "environments"))
        assert [line for _, line in told].count("complete") == 1, "built once, by the first who asked"
        other = await rig.started(WHERE.format("tiny"), requirements=("tiny",))
        assert result(await rig.run(other))["value"] == 2, "another set has an environment of its own"

    def progress(name, line):
        told.append((name, line))

    play(tmp_path / "data", scene, isolation=isolation(walls), progress=progress)
    assert any("Processing" in line or "Looking in links" in line for _, line in told), "the installer's own lines"

    async def later(rig):
        told.clear()
        await rig.started(WHERE.format("tiny"), requirements=("tiny==1.0",))
        assert told == [], "the next server finds it"

    play(tmp_path / "data", later, isolation=isolation(walls), progress=progress)


def environments(data, install=None, *, walls=NO_ISOLATION, limits=LIMITS, release=lambda _: True):
    """The environments of a data directory, without a node."""
    install = install or Installer(data, walls, None, MachineNetwork(), limits).install
    return Environments(data, install, limits, found=load_marks(data / DIRECTORY), release=release)


def test_a_failure_shows_the_installers_words_and_is_not_kept(tmp_path, wheels):
    async def scene(rig):
        outcome = await rig.not_started(WHERE.format("late"), requirements=("late==3.0",))
        assert outcome.status == Status.DEVELOPER_ERROR
        text = result(outcome)["error"]
        assert text.startswith("The requirements could not be installed: ERROR: ")
        assert "No matching distribution found for late==3.0" in text
        again = result(await rig.not_started(WHERE.format("late"), requirements=("late==3.0",)))["error"]
        assert again.startswith(text)
        assert f"in {FIRST_DELAY_S} s or later" in again, "it is not repeated at once"

    play(tmp_path / "data", scene)
    wheel(wheels, "late", "3.0", "VALUE = 3")

    async def later(rig):
        sandbox = await rig.started(WHERE.format("late"), requirements=("late==3.0",))
        assert result(await rig.run(sandbox))["value"] == 3

    play(tmp_path / "data", later)


def test_a_build_that_takes_too_long_is_ended_with_its_processes(tmp_path, wheels):
    archive = source_archive("sleepy", "1.0", "import time\ntime.sleep(1000)\n")
    (wheels / archive[0]).write_bytes(archive[1])
    limits = EnvironmentLimits(timeout_s=0.5)  # whatever the build is doing then

    async def scene(rig):
        said = result(await rig.not_started("x", requirements=("sleepy",)))["error"]
        assert "not installed within 0.5 s, the time limit of a build (--limit build_s)" in said

    play(tmp_path / "data", scene, environment_limits=limits)
    assert list((tmp_path / "data" / "environments").iterdir()) == []


@pytest.mark.parametrize("requirement", ["-r /etc/passwd", "--index-url=http://x", " ", "a\nb"])
def test_options_are_not_requirements(tmp_path, requirement):
    async def scene(rig):
        outcome = await rig.not_started("x", requirements=(requirement,))
        assert outcome.status == Status.DEVELOPER_ERROR
        assert f"The requirement {requirement!r} is not one" in result(outcome)["error"]

    play(tmp_path, scene)


# The installer is replaced by one that writes three files, and fails or finds the disk full at the end.
_BUILDS = """
import asyncio
from aliquot.live.node.environments.limits import EnvironmentLimits
from aliquot.live.node.environments.provider import Environments
fails = {fails}

async def install(build):
    (build.scratch / "download").write_bytes(b"x")
    for part in ("bin", "lib", "share"):
        (build.directory / part).mkdir()
        (build.directory / part / "file").write_bytes(b"x")
    if fails:
        raise OSError("no space left")

async def build():
    try:
        await Environments(folder, install, EnvironmentLimits(), found=[], release=bool).build(("tiny",), "guest")
    except OSError:
        pass

arm()
asyncio.run(build())
"""


@pytest.mark.parametrize("fails", [False, True])
def test_at_whichever_step_a_server_is_killed_an_environment_is_whole_or_none(tmp_path, fails):
    def check(folder):
        directory = folder / "environments"
        load_marks(directory)  # as the next server does
        left = list(directory.glob("*"))
        assert len(left) <= 1, left
        for environment in left:
            assert not fails
            files = {str(path.relative_to(environment)) for path in environment.rglob("*") if path.is_file()}
            assert files == {".complete", "bin/file", "lib/file", "share/file"}
        assert not list(directory.glob(".*"))

    assert kill_at_each_step(_BUILDS.format(fails=fails), tmp_path, check) >= 12


def test_a_mark_that_cannot_be_written_marks_nothing(tmp_path, monkeypatch):
    """A full disk leaves an empty file: it must not pass for the mark while the rest is removed."""
    written = []

    async def install(build):
        (build.directory / "file").touch()

    def full(path, *_, **__):
        path.touch()
        written.append(path.name)
        raise OSError("no space left")

    async def build():
        made = environments(tmp_path, install)
        monkeypatch.setattr(Path, "write_bytes", full)
        with pytest.raises(OSError, match="no space"):
            await made.build(("tiny",), "guest")
        assert not made.has(("tiny",))

    asyncio.run(build())
    assert written
    assert ".complete" not in written
    assert list((tmp_path / "environments").iterdir()) == []


_RESTARTS = """
from aliquot.live.node.isolation import NO_ISOLATION
from aliquot.live.node.sandbox_resources import SandboxResources
for part in ("1/tmp", "2/tmp"):
    (folder / "scratch" / part).mkdir(parents=True)
    (folder / "scratch" / part / "file").write_bytes(b"x")
arm()
SandboxResources(folder, NO_ISOLATION, 0, 0)
"""


def test_at_whichever_step_scratch_directories_are_removed_the_next_server_starts_with_none(tmp_path):
    def check(folder):
        SandboxResources(folder, NO_ISOLATION, 0, 0)
        assert [path.name for path in folder.iterdir()] == ["scratch"]
        assert list((folder / "scratch").iterdir()) == []

    assert kill_at_each_step(_RESTARTS, tmp_path, check) >= 6


@pytest.mark.usefixtures("wheels")
def test_an_environment_that_was_not_finished_is_built_again(tmp_path):
    async def build():
        made = environments(tmp_path / "data", walls=strongest())
        await made.build(("tiny",), "guest")
        python = made.find(("tiny",), "guest")
        (python.parent.parent / ".complete").unlink()
        (python.parent.parent / "half").write_text("written")
        made = environments(tmp_path / "data", walls=strongest())  # the next server
        assert made.find(("tiny",), "guest") is None
        await made.build(("tiny",), "guest")
        assert made.find(("tiny",), "guest") == python
        assert not (python.parent.parent / "half").exists()
        with pytest.raises(RequirementsError):
            await made.build(("-x",), "guest")

    asyncio.run(build())


BUILD_TIME_CODE = """
import os, pathlib
found = []
for path in {paths!r}:
    try:
        found.append(pathlib.Path(path).read_text())
    except OSError as error:
        found.append(type(error).__name__)
raise SystemExit("FOUND " + repr(found) + " AS " + str(os.getuid()) + " " + repr("SERVER_SECRET" in os.environ))
"""


@pytest.mark.skipif(not strongest().mount, reason="no mount namespaces here")
def test_what_a_package_does_while_it_is_installed_is_walled_in(tmp_path, wheels, monkeypatch):
    monkeypatch.setenv("SERVER_SECRET", "key")
    secret = tmp_path / "data" / "keys"
    secret.parent.mkdir()
    secret.write_text("secret")
    archive = source_archive("evil", "1.0", BUILD_TIME_CODE.format(paths=[str(secret)]))
    (wheels / archive[0]).write_bytes(archive[1])
    told = []

    async def scene(rig):
        outcome = await rig.not_started("x", requirements=("evil",))
        assert outcome.status == Status.DEVELOPER_ERROR

    play(tmp_path / "data", scene, progress=lambda _, line: told.append(line))
    said = [line for line in told if "FOUND" in line]
    assert said, told
    assert "FOUND ['FileNotFoundError'] AS" in said[0]
    assert said[0].strip().endswith("False")


def test_the_operators_settings_reach_the_installer(tmp_path):
    listed = "global.extra-index-url='file:///srv/simple https://x/simple'\ninstall.no-index='1'\nlist.format='columns'"
    assert pip_variables(listed) == {
        "PIP_EXTRA_INDEX_URL": "file:///srv/simple https://x/simple",
        "PIP_NO_INDEX": "1",
    }
    links = tmp_path / "links"
    links.mkdir()
    env = {"PIP_FIND_LINKS": f"{links} /nonesuch", "PIP_EXTRA_INDEX_URL": f"file://{links}/simple", "PATH": os.sep}
    assert paths_in(env) == (str(links),)


# Tries what an installation must not be able to do, and says what it is.
TRIES = """
import ctypes, os, pathlib
lines = pathlib.Path("/proc/self/status").read_text().splitlines()
status = dict(line.split(":\\t") for line in lines if ":\\t" in line)
tried = {{}}
for name, work in {{
    "namespace": lambda: ctypes.CDLL(None, use_errno=True).unshare(0x10000000) and 1 / 0,
    "system": lambda: pathlib.Path("/usr/x").write_text("x"),
    "others": lambda: [p.name for p in pathlib.Path({environments!r}).iterdir()][2],
    "outside": lambda: pathlib.Path({environments!r}, "x").write_text("x"),
}}.items():
    try:
        work()
        tried[name] = "worked"
    except Exception:
        pass
found = {{key: status[key].strip() for key in ("CapEff", "CapPrm", "CapBnd", "NoNewPrivs", "Seccomp")}}
processes = sum(path.name.isdigit() for path in pathlib.Path("/proc").iterdir())
raise SystemExit(f"IS {{found}} ROOT {{os.getuid() == 0}} DID {{tried}} PROCESSES {{processes}}")
"""


@pytest.mark.skipif(not (strongest().mount and strongest().seccomp), reason="no mount namespaces or filters here")
def test_an_installation_has_the_isolation_of_a_sandbox(tmp_path, wheels):
    environments_path = tmp_path / "data" / "environments"
    archive = source_archive("trying", "1.0", TRIES.format(environments=str(environments_path)))
    (wheels / archive[0]).write_bytes(archive[1])

    async def scene(rig):
        said = result(await rig.not_started("x", requirements=("trying",)))["error"]
        none = "0" * 16
        caps = f"'CapEff': '{none}', 'CapPrm': '{none}', 'CapBnd': '{none}'"
        assert f"IS {{{caps}, 'NoNewPrivs': '1', 'Seccomp': '2'}} ROOT False DID {{}} PROCESSES " in said
        assert int(said.partition("PROCESSES ")[2].split()[0]) < 8

    play(tmp_path / "data", scene)


@pytest.mark.long
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_a_server_without_root_builds_environments_too(tmp_path):
    wanted = f"{__file__}::test_requirements_are_installed_once_and_shared[walls]"
    command = [sys.executable, Path(__file__).parent.parent / "support" / "as_ordinary_user.py", tmp_path]
    there = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--basetemp={tmp_path}/there", wanted]
    done = subprocess.run([*command, *there], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "s" not in done.stdout.split()[0]  # it was not skipped
