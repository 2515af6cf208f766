"""Compiled code is unpacked from an archive, of which only regular files below its folder count."""

import io
import os
import tarfile

from aliquot.kernels.executor.compiled_code import CACHES, pack_code, unpack_code


def archive_of(*members):
    whole = io.BytesIO()
    with tarfile.open(fileobj=whole, mode="w:gz") as archive:
        for name, content, kind in members:
            member = tarfile.TarInfo(name)
            member.type, member.size, member.mode = kind, len(content), 0o755
            member.linkname = "/etc/passwd" if kind != tarfile.REGTYPE else ""
            archive.addfile(member, io.BytesIO(content))
    return whole.getvalue()


def unpacked(tmp_path, monkeypatch, content):
    monkeypatch.setitem(CACHES, "POCL_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "cache").mkdir(exist_ok=True)
    (tmp_path / "archive").write_bytes(content)
    unpack_code(os.open(tmp_path / "archive", os.O_RDONLY))
    return {str(path.relative_to(tmp_path)): path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}


def test_what_a_trial_has_packed_is_there_again(tmp_path, monkeypatch):
    monkeypatch.setitem(CACHES, "POCL_CACHE_DIR", str(tmp_path / "trial"))
    (tmp_path / "trial" / "AB").mkdir(parents=True)
    (tmp_path / "trial" / "AB" / "kernel.so").write_bytes(b"code")
    content = pack_code()
    assert unpacked(tmp_path, monkeypatch, content)["cache/AB/kernel.so"] == b"code"


def test_only_regular_files_below_the_folder_are_taken(tmp_path, monkeypatch):
    members = (
        ("good/file", b"good", tarfile.REGTYPE),
        ("../outside", b"bad", tarfile.REGTYPE),
        (str(tmp_path / "absolute"), b"bad", tarfile.REGTYPE),
        ("link", b"", tarfile.SYMTYPE),
        ("hard", b"", tarfile.LNKTYPE),
    )
    found = unpacked(tmp_path, monkeypatch, archive_of(*members))
    del found["archive"]
    assert found == {"cache/good/file": b"good"}


def test_a_damaged_archive_is_left_out(tmp_path, monkeypatch):
    content = archive_of(("file", os.urandom(100_000), tarfile.REGTYPE))
    assert list(unpacked(tmp_path, monkeypatch, content[: len(content) // 2])) == ["archive"]
    assert list(unpacked(tmp_path, monkeypatch, b"no archive")) == ["archive"]
