"""Volumes through real mounts: ordinary files, an exact size, several writers, and nothing but files and folders."""

import errno
import os
import random

import pytest
from mounted_views import has_views
from mounted_volumes import SIZE, VOLUME, mounted_volumes
from scripted_origin import until

from aliquot.storage.volumes.folder import BLOCK_BYTES, FILES, VolumeFolder, charge
from aliquot.storage.volumes.paths import MAX_DEPTH, split_path
from aliquot.storage.volumes.records import VolumeSpec
from aliquot.storage.volumes.server import VolumeError, VolumeServer
from aliquot.storage.volumes.uploads import UploadError

needs_mounts = pytest.mark.skipif(not has_views(), reason="this machine has no views")


@pytest.fixture
def volumes(tmp_path):
    with mounted_volumes(tmp_path) as made:
        yield made
        made.check_count()


@needs_mounts
def test_files_are_written_read_renamed_and_removed_like_others(volumes):
    found = volumes.run("""
os.makedirs("models/a/b")
with open("models/a/b/x", "w") as file: file.write("hello")
with open("models/a/b/x", "a") as file: file.write(" there")
os.rename("models/a", "models/c")
os.truncate("models/c/b/x", 7); os.chmod("models/c/b/x", 0o755); os.utime("models/c/b/x", (5, 7))
state = os.stat("models/c/b/x")
moved = open("models/c/b/x", "a"); os.rename("models/c/b/x", "models/y"); moved.write("!"); moved.close()
held = open("models/gone", "w+"); os.unlink("models/gone"); held.write("still here"); held.flush(); held.seek(0)
left = [held.read(), os.fstat(held.fileno()).st_size]
print(json.dumps([open("models/y").read(), state.st_mtime, oct(state.st_mode), state.st_uid == os.getuid(), left,
    sorted(os.listdir("models")), os.listdir("models/c"), refused(os.rmdir, "models/c")]))
""")
    left, entries = ["still here", 10], [["c", "y"], ["b"], "ENOTEMPTY"]
    assert found == ["hello t!", 7, "0o100755", True, left, *entries]


@needs_mounts
def test_a_file_can_be_mapped_and_a_database_works(volumes):
    assert volumes.run("""
import mmap, sqlite3
open("models/m", "wb").write(bytes(8192))
with open("models/m", "r+b") as file, mmap.mmap(file.fileno(), 0) as mapped:
    mapped[4096:4101] = b"12345"
with sqlite3.connect("models/db") as database:
    database.execute("create table t(a)"); database.executemany("insert into t values (?)", [(n,) for n in range(100)])
print(json.dumps([open("models/m", "rb").read()[4095:4102].hex(), database.execute("select sum(a) from t").fetchone()]))
""") == ["00313233343500", [4950]]


@needs_mounts
def test_the_size_holds_for_every_way_to_grow(volumes):
    found = volumes.run(f"""
def write(size): open("models/big", "wb").write(bytes(size))
def sparse():
    with open("models/sparse", "wb") as file: os.ftruncate(file.fileno(), 2**40)
def far():
    with open("models/far", "wb") as file: os.pwrite(file.fileno(), b"x", 2**40)
def many():
    for number in range(10**6): open(f"models/n{{number}}", "w").close()
def deleted():
    held = [open(f"models/d{{number}}", "w+b") for number in range(50)]
    for number in range(50): os.unlink(f"models/d{{number}}")
    for file in held: file.write(bytes(2**20)); file.flush()
kinds = [refused(sparse), refused(far), refused(write, {SIZE} + 1)]
os.unlink("models/big"); kinds += [refused(deleted), refused(many), refused(os.mkdir, "models/d")]
for name in os.listdir("models"): os.unlink(f"models/{{name}}")
state = os.statvfs("models")
print(json.dumps([kinds, state.f_bavail * state.f_frsize, state.f_blocks * state.f_frsize, refused(write, {SIZE})]))
""")
    assert found == [["EDQUOT"] * 6, SIZE, SIZE, "allowed"]
    assert volumes.folder.used_bytes == SIZE


@needs_mounts
def test_only_files_and_folders_can_be_made_and_no_mode_but_executable_counts(volumes):
    (volumes.base / "secret").write_text("of the operator")
    (volumes.base / "volumes" / VOLUME / FILES).mkdir(parents=True, exist_ok=True)
    (volumes.base / "volumes" / VOLUME / FILES / "link").symlink_to(volumes.base / "secret")
    found = volumes.run("""
open("models/x", "w").close()
kinds = [refused(os.symlink, "/etc/passwd", "models/l"), refused(os.link, "models/x", "models/h"),
    refused(os.mkfifo, "models/p"), refused(os.mknod, "models/d", 0o020666, os.makedev(1, 3)),
    refused(os.mknod, "models/s", 0o140666), refused(os.mkdir, "made"), refused(os.rmdir, "models"),
    refused(os.rename, "models/x", "other/x"), refused(os.rename, "models", "renamed")]
os.chmod("models/x", 0o6777)
flags = os.statvfs("models").f_flag
print(json.dumps([kinds, oct(os.stat("models/x").st_mode), bool(flags & os.ST_NOSUID), bool(flags & os.ST_NODEV),
    refused(open, "models/link"), os.listdir("models"), refused(open, "models/link", "w") != "allowed"]))
""")
    forbidden = ["EPERM"] * 5 + ["EROFS", "EROFS", "EXDEV", "EROFS"]
    assert found == [forbidden, "0o100755", True, True, "ENOENT", ["x"], True]
    assert (volumes.base / "secret").read_text() == "of the operator"
    (volumes.base / "volumes" / VOLUME / FILES / "link").unlink()
    volumes.folder._used = volumes.folder._count()  # the link was made past the server


@needs_mounts
def test_what_one_sandbox_wrote_and_closed_another_reads(volumes):
    volumes.run('open("models/x", "w").write("one")')
    reader = volumes.begin('print(open("models/x").read(), flush=True); input(); print(open("models/x").read())', 1)
    assert reader.stdout.readline() == "one\n"
    volumes.run('open("models/new", "w").write("two"); os.rename("models/new", "models/x")')
    assert reader.communicate("\n", timeout=60)[0] == "two\n"


@needs_mounts
def test_lines_that_sandboxes_append_at_once_are_all_there(volumes):
    code = 'file = os.open("models/log", os.O_CREAT | os.O_APPEND | os.O_WRONLY)\n'
    code += 'for number in range(200): os.write(file, f"{NAME} {number}\\n".encode())'
    writers = [volumes.begin(code.replace("NAME", str(mount)), mount) for mount in (0, 1)]
    for process in writers:
        process.communicate(timeout=60)
    assert [process.returncode for process in writers] == [0, 0]
    lines = (volumes.base / "volumes" / VOLUME / FILES / "log").read_text().splitlines()
    assert sorted(lines) == sorted(f"{mount} {number}" for mount in (0, 1) for number in range(200))


@needs_mounts
def test_a_volume_deleted_under_a_program_gives_errors_and_its_files_are_gone(volumes):
    program = volumes.begin("""
file = open("models/x", "wb", buffering=0); file.write(b"a"); print("there", flush=True); input()
later = refused(open, "models/y", "w"), refused(os.listdir, "models"), os.listdir()
print(json.dumps([refused(file.write, b"b"), *later]))
""")
    assert program.stdout.readline() == "there\n"
    volumes.server.remove(VOLUME)
    assert program.communicate("\n", timeout=60)[0].strip() == '["ESTALE", "ENOENT", "ENOENT", ["other"]]'
    assert not (volumes.base / "volumes" / VOLUME).exists()
    with pytest.raises(VolumeError, match="the volume was deleted"):
        volumes.server.entries(VOLUME, "", 0, 10)
    volumes.server.put(VolumeSpec(VOLUME, SIZE))  # for the check at the end


def test_the_count_stays_exact_under_random_changes(tmp_path):
    folder, rng = VolumeFolder(tmp_path / "v", 40 * BLOCK_BYTES), random.Random(7)
    names = [(FILES, *parts) for parts in (("a",), ("b",), ("d",), ("d", "a"), ("d", "b"), ("e",))]
    opened, refusals = [], set()
    for _ in range(3000):
        one, other = rng.choices(names, k=2)
        work = rng.choice(
            [
                lambda one=one: opened.append(folder.open(one, os.O_CREAT | os.O_RDWR | rng.choice([0, os.O_TRUNC]))),
                lambda: folder.write(rng.choice(opened), bytes(rng.randrange(30_000)), rng.randrange(60_000)),
                lambda: folder.resize(rng.choice(opened), rng.randrange(100_000)),
                lambda: folder.close(opened.pop(rng.randrange(len(opened)))),
                lambda one=one: folder.remove_file(one),
                lambda one=one: folder.remove_directory(one),
                lambda one=one: folder.make_directory(one),
                lambda one=one, other=other: folder.rename(one, other),
            ]
        )
        try:
            work()
        except (OSError, IndexError, ValueError) as error:
            refusals.add(getattr(error, "errno", None))
        unlinked = {file.number: charge(os.fstat(file.fd).st_size) for file in opened if not os.fstat(file.fd).st_nlink}
        assert folder.used_bytes == folder._count() + sum(unlinked.values()) <= folder.max_bytes
    assert {errno.EDQUOT, errno.ENOENT, errno.ENOTEMPTY, errno.EISDIR} <= refusals
    for file in opened:
        folder.close(file)
    assert VolumeFolder(tmp_path / "v", 1).used_bytes == folder.used_bytes  # a new agent counts the same


def test_the_disk_keeps_its_reserve(tmp_path):
    disk = os.statvfs(tmp_path)
    folder = VolumeFolder(tmp_path / "v", 2**60, disk.f_bavail * disk.f_frsize + 2**30)
    with pytest.raises(OSError, match="almost full") as caught:
        folder.open((FILES, "x"), os.O_CREAT | os.O_WRONLY)
    assert caught.value.errno == errno.ENOSPC


def test_paths_are_bounded_also_by_renames_into_each_other(tmp_path):
    folder = VolumeFolder(tmp_path / "v", 2**30)
    deep = ["d"] * (MAX_DEPTH // 2)
    for top in ("one", "two"):
        folder.make_directories((FILES, top, *deep))
    with pytest.raises(OSError, match="a path takes 128 names") as caught:
        folder.rename((FILES, "one"), (FILES, "two", *deep, "one"))
    assert caught.value.errno == errno.ENAMETOOLONG
    for path in ("../x", "a/../../x", "a/./b", "a\0b"):
        with pytest.raises(OSError, match="a path takes names"):
            split_path(path)


def test_uploads_appear_whole_and_unfinished_ones_leave_nothing(tmp_path):
    server = VolumeServer(str(tmp_path), [VolumeSpec(VOLUME, 2**20)])
    assert server.write(VOLUME, "a/x", b"one ", "u1", 0, last=False) == 4
    assert [entry.name for entry in server.entries(VOLUME, "", 0, 10)] == []
    with pytest.raises(UploadError, match="offset: 9 does not follow: 4 bytes of this upload are there"):
        server.write(VOLUME, "a/x", b"two", "u1", 9, last=True)
    assert server.write(VOLUME, "a/x", b"two", "u1", 4, last=True) == 7
    assert server.read(VOLUME, "a/x", 2, 3).data == b"e t"
    server.write(VOLUME, "b", bytes(2**19), "u2", 0, last=False)
    with pytest.raises(OSError, match="the volume is full"):
        server.write(VOLUME, "b", bytes(2**19), "u2", 2**19, last=True)
    used = 2 * BLOCK_BYTES
    assert server.used_bytes([VOLUME]) == {VOLUME: used}
    server.write(VOLUME, "c", b"half", "u3", 0, last=False)
    again = VolumeServer(str(tmp_path), [VolumeSpec(VOLUME, 2**20)])  # the agent was killed
    assert again.used_bytes([VOLUME]) == {VOLUME: used}
    assert again.remove_path(VOLUME, "a", recursive=True) == 2


def test_nothing_is_deleted_but_folders_of_volumes_that_are_no_more(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    kept = [".git", "files", VOLUME, "0" * 31, f".removed-{VOLUME}", ".removed-x", "0" * 33, "g" * 32]
    gone = ["3" * 32, f".removed-{'4' * 32}"]
    for name in (*kept, *gone):
        (tmp_path / name).mkdir()
        (tmp_path / name / "content").touch()
    known = [VolumeSpec(VOLUME, SIZE)]
    nowhere = VolumeServer("", known)  # without a folder, as in a server without data
    with pytest.raises(VolumeError, match="there is no folder"):
        nowhere.remove(VOLUME)
    for relative in (".", "volumes", "../x"):
        with pytest.raises(ValueError, match="it takes an absolute path"):
            VolumeServer(relative, known)
    assert all((tmp_path / name / "content").exists() for name in (*kept, *gone))
    server = VolumeServer(str(tmp_path), known)
    until(lambda: not any((tmp_path / name).exists() for name in gone))
    for name in ("..", ".", "", "files", "../../x"):
        with pytest.raises(VolumeError):
            server.remove(name)
    assert all((tmp_path / name / "content").exists() for name in kept)
