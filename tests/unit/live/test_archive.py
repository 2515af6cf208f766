"""Archives that strangers send: whatever they hold, they unpack below their directory or say why not."""

import base64
import contextlib
import io
import stat
import struct
import tarfile
import zipfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aliquot.runtime import archive
from aliquot.runtime.archive import MAX_ENTRIES, ArchiveError, unpack


def packed(files, compression=zipfile.ZIP_DEFLATED):
    """Entries in order, by name or by `ZipInfo`."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as made:
        for name, data in files:
            made.writestr(name, data)
    return buffer.getvalue()


def special(name, kind):
    info = zipfile.ZipInfo(name)
    info.external_attr = (kind | 0o777) << 16
    return info


def unpacked(data, directory):
    unpack(base64.b64encode(data).decode(), directory)


def nothing_beside(tmp_path):
    return [path.name for path in tmp_path.iterdir()] == ["action"]


@pytest.fixture
def directory(tmp_path):
    (tmp_path / "action").mkdir()
    return tmp_path / "action"


@pytest.mark.parametrize("compression", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_what_is_packed_is_unpacked(directory, compression):
    files = [("__main__.py", "x = 1"), ("pkg/deep/er.py", "y"), ("empty/", ""), ("back\\slash.py", "z"), ("./dot", "d")]
    unpacked(packed(files, compression), directory)
    assert (directory / "__main__.py").read_text() == "x = 1"
    assert (directory / "pkg/deep/er.py").read_text() == "y"
    assert (directory / "empty").is_dir()
    assert (directory / "back/slash.py").read_text() == "z"
    assert (directory / "dot").read_text() == "d"


def test_a_program_may_be_executed_by_its_owner_alone_whatever_the_zip_says(directory):
    unpacked(packed([(special("run", stat.S_IFREG | stat.S_ISUID | stat.S_ISGID), "#!")]), directory)
    assert stat.S_IMODE((directory / "run").stat().st_mode) == 0o700


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ([("../x", "")], "leads out of the archive"),
        ([("a/../../x", "")], "leads out of the archive"),
        ([("..\\x", "")], "leads out of the archive"),
        ([("/x", "")], "leads out of the archive"),
        ([("\\x", "")], "leads out of the archive"),
        ([(special("x", stat.S_IFLNK), "/etc/passwd")], "is a symbolic link"),
        ([(special("x/", stat.S_IFLNK), "/etc")], "is a symbolic link"),
        ([(special("x", stat.S_IFIFO), "")], "neither a file nor a directory"),
        ([(special("x", stat.S_IFCHR), "")], "neither a file nor a directory"),
        ([("a", ""), ("a/b", "")], "cannot be unpacked"),
        ([("a/b", ""), ("a", "")], "cannot be unpacked"),
        ([("a", ""), ("a/", "")], "cannot be unpacked"),
        ([("a", "1"), ("./a", "2")], "cannot be unpacked"),
        ([("x" * 300, "")], "cannot be unpacked"),
        ([("a/" * 100 + "x", "")], "is 101 deep"),
        ([(".", "")], "cannot be unpacked"),
        ([(f"{number:x}/" * 60 + "x", "") for number in range(900)], f"more than {MAX_ENTRIES} directories"),
        ([("zeros", b"\0" * 50_000_000)], "looks like a zip bomb"),
        ([(f"zeros{number}", b"\0" * 1_000_000) for number in range(50)], "looks like a zip bomb"),
    ],
)
def test_what_would_do_harm_is_refused(directory, tmp_path, files, said):
    with pytest.raises(ArchiveError, match=said):
        unpacked(packed(files), directory)
    assert nothing_beside(tmp_path)


def test_more_entries_than_anyone_needs_are_refused(directory, monkeypatch):
    monkeypatch.setattr(archive, "MAX_ENTRIES", 100)
    with pytest.raises(ArchiveError, match="has 101 entries; at most 100 are taken"):
        unpacked(packed([(str(number), "") for number in range(101)]), directory)


def with_field(data, signature, offset, value, form="<L"):
    """The zip with one field of its headers changed."""
    at = data.index(signature) + offset
    return data[:at] + struct.pack(form, value) + data[at + struct.calcsize(form) :]


LOCAL, CENTRAL = b"PK\x03\x04", b"PK\x01\x02"


@pytest.mark.parametrize(
    "change",
    [
        lambda data: with_field(data, CENTRAL, 24, 10),  # it says that less is in it
        lambda data: with_field(data, CENTRAL, 20, 3),  # so little of it is packed
        lambda data: with_field(data, CENTRAL, 16, 1),  # another checksum
        lambda data: with_field(data, CENTRAL, 42, 2**31),  # it is elsewhere
        lambda data: with_field(data, CENTRAL, 6, 99, "<H"),  # made by a version of later
        lambda data: with_field(data, CENTRAL, 10, 99, "<H"),  # packed in another way
        lambda data: with_field(data, CENTRAL, 8, 1, "<H"),  # with a password
        lambda data: with_field(data, LOCAL, 26, 60_000, "<H"),  # a name without an end
        lambda data: data[:-30],
        lambda data: data[40:],
        lambda data: data.replace(data[45:55], b"\xff" * 10),  # not what deflate makes
    ],
)
def test_a_zip_that_lies_is_refused(directory, tmp_path, change):
    lying = change(packed([("__main__.py", bytes(range(256)) * 40)]))
    with pytest.raises(ArchiveError):
        unpacked(lying, directory)
    assert nothing_beside(tmp_path)


@settings(max_examples=200, deadline=None)
@given(
    st.binary(min_size=1, max_size=6),
    st.integers(0, 10_000),
    st.sampled_from([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA]),
)
def test_any_damage_is_an_archive_error_or_none(tmp_path_factory, noise, at, compression):
    whole = packed([("__main__.py", "x = 1" * 50), ("pkg/a.py", "y"), ("../out", "z")][: 2 + at % 2], compression)
    at %= len(whole)
    data = whole[:at] + noise + whole[at + len(noise) :]
    outer = tmp_path_factory.mktemp("outer")
    (outer / "action").mkdir()
    with contextlib.suppress(ArchiveError):
        unpacked(data, outer / "action")
    assert nothing_beside(outer)


# --- tar.gz --------------------------------------------------------------------------------------------------


def tarred(entries):
    """A tar.gz with these entries: names with data, or `TarInfo` without."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as made:
        for entry, data in entries:
            info = tarfile.TarInfo(entry) if isinstance(entry, str) else entry
            info.size = len(data)
            made.addfile(info, io.BytesIO(data))
    return buffer.getvalue()


def tar_link(name, target, kind=tarfile.SYMTYPE):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info


def test_a_tar_gz_is_unpacked_with_links_that_stay_inside(directory):
    unpacked(
        tarred(
            [
                ("./__main__.py", b"x = 1"),
                ("tools/run.js", b"run"),
                (tar_link(".bin/run", "../tools/run.js"), b""),
                (tar_link("copy.py", "__main__.py", tarfile.LNKTYPE), b""),
            ]
        ),
        directory,
    )
    assert (directory / "__main__.py").read_text() == "x = 1"
    assert (directory / ".bin/run").read_text() == "run"
    assert (directory / "copy.py").read_text() == "x = 1"


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([("../x", b"")], "leads out of the archive"),
        ([("/x", b"")], "leads out of the archive"),
        ([(tar_link("x", "../../etc/passwd"), b"")], "leads out of the archive"),
        ([(tar_link("x", "/etc/passwd", tarfile.LNKTYPE), b"")], "leads out of the archive"),
        ([(tar_link("x", "missing", tarfile.LNKTYPE), b"")], "cannot be unpacked"),
        ([(tar_link("x", "", tarfile.FIFOTYPE), b"")], "neither a file nor a directory"),
        ([(tar_link("x", "sub"), b""), ("sub/a", b""), ("x/b", b"")], "cannot be unpacked"),
        ([("zeros", b"\0" * 50_000_000)], "looks like a zip bomb"),
        ([("a/" * 100 + "x", b"")], "is 101 deep"),
    ],
)
def test_a_tar_gz_that_would_do_harm_is_refused(directory, tmp_path, entries, said):
    with pytest.raises(ArchiveError, match=said):
        unpacked(tarred(entries), directory)
    assert nothing_beside(tmp_path)


@pytest.mark.parametrize("cut", [3, 30, 200])
def test_a_damaged_tar_gz_is_refused(directory, tmp_path, cut):
    with pytest.raises(ArchiveError):
        unpacked(tarred([("__main__.py", bytes(range(256)) * 40)])[:cut], directory)
    assert nothing_beside(tmp_path)
