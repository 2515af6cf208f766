"""Views whose agent is killed: readers get an error and never a wrong byte, and another agent can continue."""

import contextlib
import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from mounted_views import has_views, mounted, until

pytestmark = pytest.mark.skipif(not has_views(), reason="this machine has no views")

DATA = bytes(range(256)) * 8000
READ = "import sys; sys.stdout.buffer.write(open(sys.argv[1], 'rb').read())"


@pytest.fixture
def base(tmp_path):
    (tmp_path / "origin").mkdir()
    for name in ("first", "second", "held"):
        (tmp_path / "origin" / name).write_bytes(name.encode() + DATA)
    return tmp_path


@contextlib.contextmanager
def agent(device: int, base: Path, *how: str):
    script = Path(__file__).parent / "view_agent.py"
    process = subprocess.Popen([sys.executable, script, str(device), base, *how], pass_fds=[device])
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def test_when_the_agent_is_killed_readers_get_an_error_and_what_they_have_open_goes_on(base):
    with mounted(base / "view") as (device, place), agent(device, base) as process:
        os.close(device)  # only the agent holds it
        with (place / "data" / "first").open("rb") as opened:
            assert opened.read(5) == b"first"
            waiting = subprocess.Popen([sys.executable, "-c", READ, place / "data" / "held"], stderr=subprocess.PIPE)
            until((base / "asked").exists)
            process.kill()
            process.wait()
            said = waiting.communicate()[1].decode()
            assert waiting.returncode
            assert "connect" in said  # not connected, or aborted
            with pytest.raises(OSError, match="connect") as raised:
                (place / "data" / "second").open()
            assert raised.value.errno in {errno.ENOTCONN, errno.ECONNABORTED}
            # The file was complete, so the kernel reads it by itself.
            assert opened.read() == DATA


def test_another_agent_goes_on_where_a_killed_one_left_off(base):
    with mounted(base / "view") as (device, place):
        with agent(device, base):
            opened = (place / "data" / "first").open("rb")
            waiting = subprocess.Popen([sys.executable, "-c", READ, place / "data" / "held"], stdout=subprocess.PIPE)
            until((base / "asked").exists)
        assert waiting.poll() is None
        (base / "go").touch()
        with agent(device, base), opened, waiting:
            assert waiting.stdout.read() == b"held" + DATA
            assert (place / "data" / "second").read_bytes() == b"second" + DATA
            assert sorted(os.listdir(place / "data")) == ["first", "held", "second"]  # noqa: PTH208
            assert opened.read() == b"first" + DATA
            assert (place / "data" / "first").read_bytes() == b"first" + DATA
        os.close(device)


def test_what_was_open_with_a_killed_agent_is_never_taken_for_another_file(base):
    """The kernel still uses inode numbers of the dead agent, which the next agent does not know."""
    with mounted(base / "view") as (device, place):
        with agent(device, base, "pieces"):
            # So that the kernel has heard that a close need not be told: the next agent is a child of this process,
            # which closes what it inherits before there is anybody to answer.
            (place / "data" / "second").read_bytes()
            first = os.open(place / "data" / "first", os.O_RDONLY)
            names = os.scandir(place / "data")
            assert os.pread(first, 5, 0) == b"first"
        with agent(device, base, "pieces"):
            second = os.open(place / "data" / "second", os.O_RDONLY)
            with pytest.raises(OSError, match=os.strerror(errno.EIO)):
                os.pread(first, 6, 1_000_000)
            os.close(first)
            names.close()
            (place / "data" / "held").exists()  # asked after the releases
            assert os.pread(second, 6, 0) == b"second"
            os.close(second)
        os.close(device)
