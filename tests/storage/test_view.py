"""Tests of views with real mounts, a real cache, and readers in separate processes."""

import errno
import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
from mounted_views import READ, has_views, make_origin, md5, mounted_view, until

from aliquot.storage.cache import Urgency
from aliquot.storage.records import FileKey, Found, Listed
from aliquot.storage.view import handles, wire
from aliquot.storage.view.files import OpenFiles
from aliquot.storage.view.inodes import Inode
from aliquot.testing.waiting import wait_until

pytestmark = [
    pytest.mark.skipif(not has_views(), reason="this machine has no views"),
    pytest.mark.usefixtures("origin"),
]
each_way = pytest.mark.usefixtures("way")


@pytest.fixture
def origin(tmp_path):
    return make_origin(tmp_path / "origin")


@pytest.fixture(params=["passed through", "in pieces", "in pieces, kept"])
def way(request, monkeypatch):
    """Run the test for each way in which the kernel reads a file."""
    if request.param != "passed through":
        monkeypatch.setattr(wire, "WANTED", wire.WANTED & ~wire.PASSTHROUGH)
    if request.param == "in pieces, kept":
        monkeypatch.setattr(wire, "WANTED", wire.WANTED & ~wire.DIRECT_MAPPABLE)
    return request.param


def test_files_and_directories_look_as_at_their_origin_and_nothing_is_fetched_to_show_them(tmp_path):
    with mounted_view(tmp_path) as seen:
        shown = seen.place / "data"
        assert [(Path(top).name, sorted(below), sorted(files)) for top, below, files in os.walk(shown)] == [
            ("data", ["a"], ["plain.txt"]),
            ("a", ["b"], []),
            ("b", [], ["empty", "numbers"]),
        ]
        about = (shown / "plain.txt").stat()
        assert (about.st_size, about.st_mtime, oct(about.st_mode)) == (5, 1_000_000_000.25, "0o100444")
        assert (shown / "a" / "b" / "numbers").stat().st_size == 3_000_000
        assert oct((shown / "a").stat().st_mode) == "0o40555"
        listed = subprocess.run(["ls", "-lR", shown], capture_output=True, text=True, check=True).stdout
        assert "plain.txt" in listed
        assert "numbers" in listed
        assert not seen.told
        assert not seen.cache.stats().datasets  # no file was requested


@each_way
def test_every_way_to_read_gives_the_same_bytes(tmp_path, origin):
    whole = (origin / "a" / "b" / "numbers").read_bytes()
    mapped = """
import sys, mmap, hashlib
with open(sys.argv[1] + "/data/a/b/numbers", "rb") as file:
    for flags in (mmap.MAP_SHARED, mmap.MAP_PRIVATE):
        with mmap.mmap(file.fileno(), 0, flags=flags, prot=mmap.PROT_READ) as mapping:
            print(hashlib.md5(mapping).hexdigest())
    print(hashlib.md5(file.read()).hexdigest())
"""
    in_parts = """
import sys, os
fd = os.open(sys.argv[1] + "/data/a/b/numbers", os.O_RDONLY)
print([os.pread(fd, 5, place).hex() for place in (2_999_998, 0, 1_048_575, 3_000_000)])
"""
    with mounted_view(tmp_path) as seen:
        path = seen.place / "data" / "a" / "b" / "numbers"
        assert path.read_bytes() == whole
        assert subprocess.run(["cat", path], capture_output=True, check=True).stdout == whole
        assert seen.read_by(mapped).split() == [md5(whole)] * 3
        expected = [whole[place : place + 5].hex() for place in (2_999_998, 0, 1_048_575, 3_000_000)]
        assert seen.read_by(in_parts).strip() == str(expected)
        assert (seen.place / "data" / "a" / "b" / "empty").read_bytes() == b""
        assert [each.found for each in seen.told] == [Found.FETCHED, *[Found.CACHED] * 3, Found.FETCHED]
        assert {each.key for each in seen.told} == {FileKey("data", "a/b/numbers"), FileKey("data", "a/b/empty")}


def test_nothing_can_be_changed_and_what_is_not_there_is_not_there(tmp_path):
    with mounted_view(tmp_path) as seen:
        shown = seen.place / "data"
        for change in (
            lambda: (shown / "plain.txt").write_text("other"),
            (shown / "new").touch,
            (shown / "plain.txt").unlink,
            lambda: (shown / "a").rename(shown / "c"),
            (seen.place / "mine").mkdir,
        ):
            with pytest.raises(OSError, match="Read-only") as raised:
                change()
            assert raised.value.errno == errno.EROFS
        for path in ("data/none", "data/plain.txt/x", "data/a/../none", "other"):
            assert not (seen.place / path).exists()
        assert os.listdir(seen.place) == ["data"]  # noqa: PTH208 - as a program would


def test_an_open_waits_for_its_file_alone(tmp_path, origin):
    with mounted_view(tmp_path) as seen:
        go = seen.origin.hold("plain.txt")
        waiting = seen.reader(READ, "data/plain.txt")
        assert seen.origin.asked.wait()
        assert seen.read_by(READ, "data/a/b/numbers").strip() == md5((origin / "a" / "b" / "numbers").read_bytes())
        assert waiting.poll() is None
        assert [each.key.path for each in seen.told] == ["a/b/numbers"]
        go.set()
        with waiting:
            assert waiting.stdout.read().strip() == md5(b"hello")
        assert seen.told[-1].found is Found.FETCHED
        assert seen.told[-1].waited_s > seen.told[0].waited_s


def test_two_that_ask_for_one_file_wait_for_one_transfer(tmp_path):
    with mounted_view(tmp_path) as seen:
        go = seen.origin.hold("plain.txt")
        both = [seen.reader(READ, "data/plain.txt") for _ in range(2)]
        assert seen.origin.asked.wait()
        until(lambda: seen.waiting() == 2)
        go.set()
        for process in both:
            with process:
                assert process.stdout.read().strip() == md5(b"hello")
        assert seen.cache.stats().datasets["data"].fetched_bytes == 5


def test_a_reader_that_is_killed_while_it_waits_ends_at_once_and_its_transfer_with_it(tmp_path):
    with mounted_view(tmp_path) as seen:
        seen.origin.hold("a/b/numbers")
        for how in (signal.SIGKILL, signal.SIGINT):
            seen.origin.asked.clear()
            with seen.reader(READ, "data/a/b/numbers") as waiting:
                assert seen.origin.asked.wait()
                os.kill(waiting.pid, how)
                waiting.wait()
            until(lambda: not seen.cache.stats().in_flight)
            seen.origin.held["a/b/numbers"].set()
            seen.origin.hold("a/b/numbers")
        assert (seen.place / "data" / "plain.txt").read_text() == "hello"
        assert [each.key.path for each in seen.told] == ["plain.txt"]


@each_way
def test_a_file_that_changes_is_another_file_to_new_readers_and_the_same_to_who_has_it_open(tmp_path, origin):
    with mounted_view(tmp_path) as seen:
        path = seen.place / "data" / "plain.txt"
        with path.open() as first:
            assert path.read_text() == "hello"
            (origin / "plain.txt").write_text("something longer")
            assert path.read_text() == "something longer"
            assert path.stat().st_size == len("something longer")
            assert first.read() == "hello"
            assert os.fstat(first.fileno()).st_size == 5
            (origin / "plain.txt").unlink()
            with pytest.raises(FileNotFoundError):
                path.open()
            first.seek(0)
            assert first.read() == "hello"


def test_a_piece_of_a_large_file_waits_for_that_piece_alone(tmp_path, origin):
    tail = b"the end"
    with (origin / "huge").open("wb") as file:
        file.seek(20 * 2**30)
        file.write(tail)
    code = "import sys; f = open(sys.argv[1] + '/data/huge', 'rb'); f.seek(-7, 2); print(f.read().decode())"
    with mounted_view(tmp_path) as seen:
        assert (seen.place / "data" / "huge").stat().st_size == 20 * 2**30 + 7
        assert seen.read_by(code).strip() == tail.decode()
        assert seen.cache.stats().used_bytes < 2**26


def test_a_file_that_became_whole_while_it_is_read_in_pieces_can_be_opened_again(tmp_path, origin):
    data = random.Random(2).randbytes(9 * 2**20)
    (origin / "large").write_bytes(data)
    with mounted_view(tmp_path, whole_bytes=2**20, chunk_bytes=2**20) as seen:
        path = seen.place / "data" / "large"
        with path.open("rb") as first:
            assert first.read(10) == data[:10]
            seen.cache.fetch(FileKey("data", "large"), urgency=Urgency.DEMAND).result()
            assert path.read_bytes() == data  # all opens of an inode are read in the same way
            assert first.read() == data[10:]
        until(lambda: not seen.cache.stats().open)
        assert path.read_bytes() == data


def test_a_file_is_let_go_of_although_the_kernel_does_not_take_its_number_back():
    let_go = []

    class Whole:
        fd = None

        def close(self):
            let_go.append(self)

    with Path(os.devnull).open() as device:  # it refuses every ioctl
        files = OpenFiles(device.fileno())
        handle, _ = files.add(7, Whole())
        files._backings[7] = 1
        with pytest.raises(OSError, match="ioctl"):
            files.release(handle)
    assert len(let_go) == 1


@pytest.mark.parametrize("count", [20_000, pytest.param(100_000, marks=pytest.mark.long)])
def test_many_thousand_files_are_listed_without_a_transfer(tmp_path, count):
    files = [Listed(f"d{number // 1000:03}/f{number:06}", number, "1") for number in range(count)]

    def list_many(origin):
        origin.files = lambda: iter(files)

    with mounted_view(tmp_path, list_many) as seen:
        script = ["ls", "-lR", "--time-style=+", seen.place / "data"]
        lines = subprocess.run(script, capture_output=True, text=True, check=True).stdout.splitlines()
        shown = {line.split()[-1]: int(line.split()[4]) for line in lines if line.startswith("-r--r--r--")}
        assert shown == {file.path.rpartition("/")[2]: file.size for file in files}
        assert not seen.told
        assert not seen.cache.stats().in_flight


def test_many_readers_of_files_that_change_never_see_a_mixture(tmp_path, origin):
    def write(number: int, round_: int) -> None:
        target = origin / f"part-{number}"
        target.with_suffix(".new").write_bytes(
            bytes([number, round_]) * random.Random(round_).randrange(10_000, 400_000)
        )
        target.with_suffix(".new").rename(target)

    code = """
import sys, random
random.seed(int(sys.argv[2]))
for _ in range(60):
    number = random.randrange(6)
    try:
        data = open(f"{sys.argv[1]}/data/part-{number}", "rb").read()
    except OSError as error:
        print("error", error.errno)
        continue
    print("whole" if data[0] == number and data == data[:2] * (len(data) // 2) else "mixed")
"""
    for number in range(6):
        write(number, 0)
    with mounted_view(tmp_path) as seen:
        readers = [seen.reader(code, str(seed)) for seed in range(3)]

        def over() -> bool:
            return all(reader.poll() is not None for reader in readers)

        round_ = opened = 0
        while not over():
            round_ = (round_ + 1) % 256
            write(round_ % 6, round_)
            # Faster changes would leave a slow reader no version to read.
            wait_until(lambda so_far=opened: over() or len(seen.told) >= so_far + 2, what="readers to open files")
            opened = len(seen.told)
        said = [line for reader in readers for line in reader.communicate()[0].splitlines()]
        assert len(said) == 180
        # The file may change faster than it can be opened: then the open must fail.
        assert set(said) <= {"whole", f"error {errno.ESTALE}", f"error {errno.ENOENT}"}
        assert said.count("whole") > 60


def test_a_function_has_a_bounded_number_of_files_open(tmp_path, monkeypatch):
    monkeypatch.setattr(handles, "MAX_OPEN_FILES", 2)
    with mounted_view(tmp_path) as seen:
        path = seen.place / "data" / "plain.txt"
        with path.open(), path.open():
            with pytest.raises(OSError, match="Too many open files") as raised:
                path.open()
            assert raised.value.errno == errno.ENFILE
            assert "2 files" in seen.told[-1].error
        until(lambda: not seen.cache.stats().open)
        assert path.read_text() == "hello"


def test_a_tenant_has_a_part_of_all_open_files_and_directories(tmp_path):
    with mounted_view(tmp_path) as seen:
        seen.views._handles.total = 6  # a tenant alone gets three
        path = seen.place / "data" / "plain.txt"
        with path.open(), path.open(), os.scandir(seen.place / "data") as directory:
            next(directory)
            with pytest.raises(OSError, match="Too many open files") as raised:
                path.open()
            assert raised.value.errno == errno.ENFILE
            assert "the namespace holds 3 files and asks for 1 more; it may hold 3" in seen.told[-1].error
            with pytest.raises(OSError, match="Too many open files"):
                os.scandir(seen.place / "data")
            neighbour = handles.TenantHandles(seen.views._handles, "neighbour")
            assert neighbour.reserve(Inode("data", "plain.txt"), 0)
        until(lambda: not seen.views._handles.used)
        assert path.read_text() == "hello"


def test_views_that_stop_while_a_file_is_on_its_way_let_its_readers_go_and_hold_nothing(tmp_path):
    with mounted_view(tmp_path) as seen:
        go = seen.origin.hold("plain.txt")
        with seen.reader(READ, "data/plain.txt") as waiting:
            assert seen.origin.asked.wait()
            until(lambda: seen.waiting() == 1)
            seen.views.stop()
            assert waiting.wait() != 0
        go.set()  # the file arrives after its reader has ended
        until(lambda: not seen.cache.stats().in_flight)
        seen.views.close(1)


@pytest.mark.parametrize("how", ["read", "mmap"])
def test_a_reader_that_is_killed_while_it_waits_for_a_piece_ends_at_once(tmp_path, origin, how):
    (origin / "large").write_bytes(random.Random(3).randbytes(3 * 2**20))
    code = """
import sys, mmap
file = open(sys.argv[1] + "/data/large", "rb")
print("opened", flush=True)
print(file.read(10) if sys.argv[2] == "read" else mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)[0])
"""
    with mounted_view(tmp_path, whole_bytes=2**20, chunk_bytes=2**20) as seen:
        go = seen.origin.hold("large")
        with seen.reader(code, how) as waiting:
            assert waiting.stdout.readline() == "opened\n"
            assert seen.origin.asked.wait()
            until(seen.waiting)
            waiting.kill()
            waiting.wait()
        go.set()
        until(lambda: not seen.cache.stats().open)
        del seen.origin.held["large"]
        assert (seen.place / "data" / "large").read_bytes() == (origin / "large").read_bytes()


def test_a_name_that_is_no_text_names_no_file(tmp_path, origin):
    (origin / "\ufffd").write_text("a sign of replacement")
    with mounted_view(tmp_path) as seen:
        assert (seen.place / "data" / "\ufffd").exists()
        assert not os.path.exists(bytes(seen.place / "data") + b"/\xff")  # noqa: PTH110 - bytes


def test_who_reads_a_large_file_as_it_comes_has_its_waits_told(tmp_path, origin):
    (origin / "large").write_bytes(random.Random(3).randbytes(3_000_000))
    with mounted_view(tmp_path, whole_bytes=1_000_000, chunk_bytes=1_000_000) as seen:
        go_on = seen.origin.hold("large")
        reader = seen.reader(READ, "data/large")
        until(seen.origin.asked.is_set)
        time.sleep(0.05)
        go_on.set()
        assert reader.communicate()[0].strip() == md5((origin / "large").read_bytes())
        assert {wait.key for wait in seen.waits} == {FileKey("data", "large")}
        assert sum(wait.waited_s for wait in seen.waits) >= 0.05
        assert [told.found for told in seen.told] == [Found.FETCHED]
