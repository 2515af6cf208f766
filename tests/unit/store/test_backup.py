"""Backups of a data folder, and what a restore refuses."""

import io
import json
import sqlite3
import tarfile
import threading
from contextlib import closing

import pytest

from aliquot.core.errors import InputError
from aliquot.live.store.backup import DataParts, restore_backup, write_backup
from aliquot.live.store.data_directory import DATABASE, OPERATOR_TOKEN
from aliquot.live.store.schema import VERSION, connect_writer
from aliquot.testing.waiting import wait_until

PARTS = DataParts(("fabric/accesses.db",), ("fabric/models",))
ADD = "INSERT INTO document VALUES ('c', 'n', ?, 'body')"


def count(path):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT count(*) FROM document").fetchone()[0]


@pytest.fixture
def data(tmp_path):
    folder = tmp_path / "data"
    (folder / "fabric" / "models" / "1").mkdir(parents=True)
    (folder / "fabric" / "models" / ".draft").mkdir()
    (folder / "fabric" / "models" / "1" / "weights").write_bytes(b"w" * 1000)
    (folder / "fabric" / "models" / ".draft" / "half").touch()
    (folder / "environments").mkdir()
    (folder / "environments" / "large").touch()
    (folder / OPERATOR_TOKEN).write_text("token")
    with closing(connect_writer(folder / DATABASE, busy_ms=1000)) as connection:
        connection.execute(ADD, ("first",))
    with closing(sqlite3.connect(folder / "fabric" / "accesses.db")) as connection:
        connection.execute("CREATE TABLE accesses (x)")
    return folder


@pytest.mark.parametrize("name", ["b.tar", "b.tar.gz"])
def test_a_restored_folder_has_what_cannot_be_made_again(data, tmp_path, name):
    manifest = write_backup(data, tmp_path / name, PARTS)
    assert (tmp_path / name).stat().st_mode & 0o777 == 0o600
    assert restore_backup(tmp_path / name, tmp_path / "new", PARTS) == manifest
    files = {str(path.relative_to(tmp_path / "new")) for path in (tmp_path / "new").rglob("*") if path.is_file()}
    assert files == {"lock", DATABASE, OPERATOR_TOKEN, "fabric/accesses.db", "fabric/models/1/weights"}
    assert count(tmp_path / "new" / DATABASE) == 1
    assert (tmp_path / "new" / OPERATOR_TOKEN).read_text() == "token"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["b.tar" if name == "b.tar" else name, "data", "new"]


def test_a_backup_of_a_database_that_is_written_is_of_one_moment(data, tmp_path):
    """The writer adds rows in pairs. A backup never has half a pair."""
    ended = threading.Event()
    written = []

    def write():
        with closing(connect_writer(data / DATABASE, busy_ms=10_000)) as connection:
            while not ended.is_set():
                number = len(written)
                connection.execute("BEGIN")
                connection.execute(ADD, (f"{number} a",))
                connection.execute(ADD, (f"{number} b",))
                connection.execute("COMMIT")
                written.append(number)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        wait_until(lambda: len(written) > 20, what="the writer to write")
        for number in range(5):
            write_backup(data, tmp_path / f"{number}.tar", PARTS)
    finally:
        ended.set()
        writer.join()
    for number in range(5):
        restore_backup(tmp_path / f"{number}.tar", tmp_path / f"new{number}", PARTS)
        assert count(tmp_path / f"new{number}" / DATABASE) % 2 == 1
        assert count(tmp_path / f"new{number}" / DATABASE) > 40


def test_a_folder_that_is_no_servers_has_no_backup(tmp_path):
    with pytest.raises(InputError, match=r"--data: .* is not the data folder of a server: it has no aliquot.db"):
        write_backup(tmp_path, tmp_path / "b.tar", PARTS)


def test_a_backup_that_cannot_be_written_leaves_nothing(data, tmp_path):
    with pytest.raises(InputError, match=r"FILE: .* cannot be written"):
        write_backup(data, tmp_path / "missing" / "b.tar", PARTS)


def test_a_folder_with_a_database_is_not_restored_over(data, tmp_path):
    write_backup(data, tmp_path / "b.tar", PARTS)
    with pytest.raises(InputError, match="has a database already"):
        restore_backup(tmp_path / "b.tar", data, PARTS)
    assert count(data / DATABASE) == 1


def changed(source, target, change):
    """Write an archive again, with each member's content as `change(name, content)` returns it."""
    with tarfile.open(source) as old, tarfile.open(target, "w") as new:
        for member in old:
            content = change(member.name, old.extractfile(member).read())
            member.size = len(content)
            new.addfile(member, io.BytesIO(content))


def test_a_damaged_backup_is_refused_and_leaves_no_database(data, tmp_path):
    write_backup(data, tmp_path / "b.tar", PARTS)
    changed(tmp_path / "b.tar", tmp_path / "bad.tar", lambda name, old: old if name != OPERATOR_TOKEN else b"other")
    with pytest.raises(InputError, match=r"operator\.token has another checksum"):
        restore_backup(tmp_path / "bad.tar", tmp_path / "new", PARTS)
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["lock"]
    (tmp_path / "cut.tar").write_bytes((tmp_path / "b.tar").read_bytes()[:3000])
    with pytest.raises(InputError, match=r"FILE: .*cut.tar"):
        restore_backup(tmp_path / "cut.tar", tmp_path / "new", PARTS)
    restore_backup(tmp_path / "b.tar", tmp_path / "new", PARTS)


@pytest.mark.parametrize("name", ["../evil", "/etc/evil", "fabric/models/../../evil", "environments/evil"])
def test_a_backup_cannot_write_outside_its_parts(data, tmp_path, name):
    write_backup(data, tmp_path / "b.tar", PARTS)

    def add_file(member, content):
        if member != "manifest.json":
            return content
        manifest = json.loads(content)
        manifest["files"][name] = {"bytes": 0, "sha256": ""}
        return json.dumps(manifest).encode()

    changed(tmp_path / "b.tar", tmp_path / "bad.tar", add_file)
    with pytest.raises(InputError, match="does not belong in one"):
        restore_backup(tmp_path / "bad.tar", tmp_path / "new", PARTS)
    assert not (tmp_path / "evil").exists()


def test_what_is_no_backup_is_refused(tmp_path):
    (tmp_path / "text").write_text("hello")
    with pytest.raises(InputError, match=r"FILE: .*text cannot be restored"):
        restore_backup(tmp_path / "text", tmp_path / "new", PARTS)
    with tarfile.open(tmp_path / "other.tar", "w") as archive:
        archive.add(tmp_path / "text", "text")
    with pytest.raises(InputError, match="is not a backup of Aliquot"):
        restore_backup(tmp_path / "other.tar", tmp_path / "new", PARTS)


def test_a_backup_of_a_newer_version_is_refused(data, tmp_path):
    with closing(sqlite3.connect(data / DATABASE)) as connection:
        connection.execute(f"PRAGMA user_version = {VERSION}")
    write_backup(data, tmp_path / "b.tar", PARTS)

    def newer(name, content):
        return json.dumps({**json.loads(content), "format": 2}).encode() if name == "manifest.json" else content

    changed(tmp_path / "b.tar", tmp_path / "new.tar", newer)
    with pytest.raises(InputError, match="was written by Aliquot"):
        restore_backup(tmp_path / "new.tar", tmp_path / "new", PARTS)
