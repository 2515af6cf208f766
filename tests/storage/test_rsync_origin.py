"""A NAS that offers only rsync: a real daemon on this machine."""

import contextlib
import os
import shutil
import socket
import subprocess
import threading
import time

import pytest

from aliquot.core.errors import InputError
from aliquot.storage.cache import CacheSettings, NodeCache
from aliquot.storage.errors import AbsentError, ChangedError, OriginError, PathError
from aliquot.storage.origins import origin_for
from aliquot.storage.records import Dataset, FileKey
from aliquot.testing.waiting import wait_until

pytestmark = pytest.mark.skipif(shutil.which("rsync") is None, reason="the program rsync is not installed")


@contextlib.contextmanager
def reserved_port():
    """Reserve a port that only a process with SO_REUSEADDR may bind. Rsync sets it."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


def listens(port):
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except ConnectionRefusedError:
        return False
    return True


@pytest.fixture(scope="module")
def nas(tmp_path_factory):
    """Run a daemon and yield its directory and address."""
    place = tmp_path_factory.mktemp("nas")
    root = place / "data"
    root.mkdir()
    (place / "secrets").write_text("reader:hunter2\n")
    (place / "secrets").chmod(0o600)
    owner = f"uid = {os.getuid()}\ngid = {os.getgid()}\n" if os.getuid() == 0 else ""
    (place / "rsyncd.conf").write_text(
        f"use chroot = no\npid file = {place}/pid\nlog file = {place}/log\n{owner}"
        f"[data]\npath = {root}\nread only = yes\n"
        f"[private]\npath = {root}\nread only = yes\nauth users = reader\nsecrets file = {place}/secrets\n"
    )
    with reserved_port() as port:
        command = ["rsync", "--daemon", "--no-detach", f"--port={port}", "--address=127.0.0.1"]
        daemon = subprocess.Popen([*command, f"--config={place}/rsyncd.conf"], stdin=subprocess.DEVNULL)
        try:
            wait_until(lambda: daemon.poll() is not None or listens(port), what="rsync's daemon to listen")
            assert daemon.poll() is None
            yield root, f"127.0.0.1:{port}"
        finally:
            daemon.terminate()
            daemon.wait()


def age(root):
    """Write a file with a time one hour ago, because the origin waits for a file of the current second."""
    for path in [root, *root.rglob("*")]:
        os.utime(path, (time.time() - 3600,) * 2, follow_symlinks=False)


@pytest.fixture
def root(nas):
    root, _ = nas
    for path in root.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return root


@pytest.fixture
def origin(nas, root):  # noqa: ARG001
    return origin_for(Dataset("d", f"rsync://{nas[1]}/data"))


def test_files_are_listed_with_whatever_names_they_have(origin, root):
    names = ["a", "with space", "ünï", "br[ack]et*", "new\nline", "-dash", "deep/er/b"]
    for number, name in enumerate(names):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(b"x" * number)
    (root / "link").symlink_to("/etc/passwd")
    age(root)
    origin.check()
    assert {file.path: file.size for file in origin.files()} == {name: size for size, name in enumerate(names)}
    assert {file.path: file for file in origin.files()} == {name: origin.stat(name) for name in names}


def test_a_file_comes_whole_and_only_the_one_that_was_meant(origin, root, tmp_path):
    content = os.urandom(3_000_000)
    (root / "br[a]*").write_bytes(content)
    (root / "bra").write_bytes(b"wrong")
    age(root)
    origin.copy(origin.stat("br[a]*"), tmp_path / "copy", lambda _: True)
    assert (tmp_path / "copy").read_bytes() == content
    assert [path.name for path in tmp_path.iterdir()] == ["copy"]


def test_what_is_not_there_is_said(origin, root):
    (root / "folder").mkdir()
    for path in ("nothing", "folder", "folder/x"):
        with pytest.raises(AbsentError):
            origin.stat(path)
    (root / "link").symlink_to("/etc/passwd")
    with pytest.raises(AbsentError):
        origin.stat("link")
    with pytest.raises(PathError):
        origin.stat("../x")


def test_a_file_that_changed_is_not_taken_for_the_one_that_was_asked_for(origin, root, tmp_path):
    (root / "a").write_bytes(b"old")
    age(root)
    listed = origin.stat("a")
    (root / "a").write_bytes(b"newer")
    with pytest.raises(ChangedError):
        origin.copy(listed, tmp_path / "copy", lambda _: True)
    assert list(tmp_path.iterdir()) == []


def test_a_file_of_this_very_second_is_left_to_settle(origin, root, tmp_path):
    """Otherwise another write within the same second would not be noticed."""
    (root / "a").write_bytes(b"old")
    listed = origin.stat("a")
    (root / "a").write_bytes(b"new")
    origin.copy(listed, tmp_path / "copy", lambda _: True)
    with pytest.raises(ChangedError):
        origin.confirm(listed)


def test_a_module_with_a_password(nas, root):
    (root / "a").write_bytes(b"abc")
    age(root)
    address = f"rsync://reader@{nas[1]}/private"
    assert origin_for(Dataset("d", address, {"password": "hunter2"})).stat("a").size == 3
    with pytest.raises(OriginError) as raised:
        origin_for(Dataset("d", address, {"password": "wrong!"})).check()
    assert "wrong!" not in str(raised.value)


def test_a_nas_that_is_down_is_said_to_be():
    with reserved_port() as port:
        origin = origin_for(Dataset("d", f"rsync://127.0.0.1:{port}/data"))
        with pytest.raises(OriginError, match="refused"):
            origin.stat("a")
        with pytest.raises(OriginError, match="refused"):
            list(origin.files())


def test_rsync_over_a_remote_shell(root, tmp_path):
    """A fake remote shell runs the command on this machine instead of another."""
    (root / "a b").write_bytes(b"abc")
    age(root)
    shell = tmp_path / "shell"
    shell.write_text('#!/bin/sh\nshift\nexec "$@"\n')
    shell.chmod(0o755)
    origin = origin_for(Dataset("d", f"nas:{root}", {"ssh": str(shell)}))
    assert [file.path for file in origin.files()] == ["a b"]
    origin.copy(origin.stat("a b"), tmp_path / "copy", lambda _: True)
    assert (tmp_path / "copy").read_bytes() == b"abc"
    with pytest.raises(InputError):
        origin_for(Dataset("d", "-e:sh", {}))


def test_a_copy_pauses_and_stops_when_it_is_told_to(origin, root, tmp_path):
    (root / "large").write_bytes(os.urandom(40_000_000))
    age(root)
    listed = origin.stat("large")
    answers = iter([False, False, True])
    with pytest.raises(KeyError):
        origin.copy(listed, tmp_path / "copy", lambda _: next(answers) or {}["stop"])
    assert list(tmp_path.iterdir()) == []


def test_the_cache_brings_files_by_rsync_once_for_all(origin, root, tmp_path):
    content = os.urandom(5_000_000)
    (root / "large").write_bytes(content)
    (root / "empty").write_bytes(b"")
    age(root)
    before = threading.active_count()
    cache = NodeCache(tmp_path / "cache", CacheSettings(limit_bytes=8_000_000, whole_bytes=1_000_000), lambda _: origin)
    tickets = [cache.open(FileKey("d", "large")) for _ in range(5)]
    for ticket in tickets:
        with ticket.result(30) as handle:
            assert os.pread(handle.fd, 6_000_000, 0) == content
    assert cache.stats().datasets["d"].fetched_bytes == len(content)
    assert cache.fetch(FileKey("d", "empty")).result(30).listed.size == 0
    cache.close()
    assert threading.active_count() == before
    assert list((tmp_path / "cache" / "arriving").iterdir()) == []


def test_a_listing_goes_on_however_much_is_complained_of_meanwhile(nas, tmp_path):
    """The remote shell writes more errors than a pipe holds, as a NAS with many unreadable directories does."""
    root, _ = nas
    shell = tmp_path / "shell"
    shell.write_text('#!/bin/sh\nyes "may not be read" | head -n 20000 >&2\nshift\nexec "$@"\n')
    shell.chmod(0o700)
    (root / "heard").write_bytes(b"heard")
    origin = origin_for(Dataset("d", f"host:{root}", {"ssh": str(shell)}))
    assert "heard" in [file.path for file in origin.files()]


def test_a_line_of_a_listing_that_does_not_end_is_given_up(tmp_path, monkeypatch):
    program = tmp_path / "rsync"
    program.write_text("#!/bin/sh\nexec yes | tr -d '\\n'\n")
    program.chmod(0o700)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    with pytest.raises(OriginError, match="a line of more than"):
        list(origin_for(Dataset("d", "host:/x")).files())
