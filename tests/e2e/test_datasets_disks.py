"""Datasets where the node's disk or a file at its origin changes under whoever reads: right bytes, or a clear word."""

import errno
import hashlib
import os
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
import small_disks
from fabric_server import FabricServer
from web_origin import web_origin

from aliquot.testing.waiting import wait_until

MB = 1_000_000
DISK_MB = 24
HOLDER = """
import hashlib, os, time
def main(args):
    with open(os.path.join(os.environ["ALIQUOT_DATASETS"], args["paths"][0]), "rb") as file:
        found = hashlib.sha256(file.read(100_000))
        time.sleep(args["pause"])
        found.update(file.read())
    return {"read": {args["paths"][0]: found.hexdigest()}}
"""


@pytest.fixture(scope="module")
def small_disk(tmp_path_factory):
    with small_disks.small_disk(tmp_path_factory.mktemp("disks") / "small", f"{DISK_MB}m") as place:
        yield place


@pytest.fixture(scope="module")
def origin():
    files = {
        name: os.urandom(size * MB)
        for name, size in (("held", 3), ("turns", 3), ("a", 8), ("b", 8), ("c", 8), ("huge", 40))
    }
    with web_origin(files) as made:
        yield made


@pytest.fixture(scope="module")
def server(tmp_path_factory, origin, small_disk):
    """A server whose cache limit is larger than its disk."""
    options = ("--cache-size", "200MB", "--cache-dir", str(small_disk))
    with FabricServer(tmp_path_factory.mktemp("disks") / "data", *options) as server:
        server.add("nas", origin[1])
        server.deploy_reader("nas")
        server.deploy_reader("nas", name="holder", code=HOLDER)
        yield server


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def found(record):
    assert record["response"]["success"], record
    return record["response"]["result"]["read"]


def test_a_cache_that_is_wiped_under_a_reader_harms_neither_it_nor_the_next(server, origin, small_disk):
    content = origin[0].files["held"]
    with ThreadPoolExecutor(1) as calls:
        call = calls.submit(server.read, "nas/held", name="holder", pause=1.5)
        wait_until(lambda: server.show("nas")["cached_files"], what="a cached file")
        time.sleep(0.3)  # it has read its first part
        for below in small_disk.iterdir():
            shutil.rmtree(below) if below.is_dir() else below.unlink()
        assert found(call.result()) == {"nas/held": sha256(content)}
    assert found(server.read("nas/held")) == {"nas/held": sha256(content)}


def test_a_file_that_changes_on_its_way_is_read_as_it_was_or_as_it_is(server, origin):
    source = origin[0]
    before = source.files["turns"]
    source.gate.clear()
    bodies = source.bodies
    with ThreadPoolExecutor(1) as calls:
        call = calls.submit(server.read, "nas/turns")
        wait_until(lambda: source.bodies, lambda sent: sent > bodies, what="the origin to send something")
        after = source.files["turns"] = os.urandom(len(before))
        source.gate.set()
        read = found(call.result())["nas/turns"]
    assert read == sha256(after)


def test_a_disk_that_is_full_makes_room_and_what_it_cannot_hold_is_refused_with_a_word(server, origin):
    files = origin[0].files
    assert found(server.read("nas/a", "nas/b", "nas/c")) == {f"nas/{name}": sha256(files[name]) for name in "abc"}
    record = server.read("nas/huge")
    assert found(record) == {"nas/huge": errno.ENOSPC}
    assert record["annotations"]["dataError"].startswith("nas/huge: the cache's disk is full")
    wait_until(
        lambda: found(server.read("nas/a")),
        lambda read: read == {"nas/a": sha256(files["a"])},
        what="room for the file, once the pieces of the other have gone",
    )


def test_what_others_leave_no_room_for_is_refused_and_what_is_here_outlives_an_agent(server, origin, small_disk):
    files = origin[0].files
    server.as_operator("POST", "/nas/evict").raise_for_status()
    assert found(server.read("nas/held")) == {"nas/held": sha256(files["held"])}
    wait_until(
        lambda: shutil.disk_usage(small_disk).used,
        lambda used: used < 2 * len(files["held"]),
        what="the files of other tests to be deleted",
    )
    others = small_disks.fill_up(small_disk)
    server.kill_agent()
    assert found(server.read("nas/held")) == {"nas/held": sha256(files["held"])}
    record = server.read("nas/a")
    assert found(record) == {"nas/a": errno.ENOSPC}
    assert record["annotations"]["dataError"].startswith("nas/a: the cache's disk is full")
    others.unlink()
    assert found(server.read("nas/a", "nas/held")) == {f"nas/{name}": sha256(files[name]) for name in ("a", "held")}
