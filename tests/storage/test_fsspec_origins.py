"""Origins that fsspec opens: buckets and other file systems."""

import fsspec
import pytest
from opened_origins import origin_at, sizes

from aliquot.core.errors import InputError
from aliquot.storage.errors import AbsentError, ChangedError, OriginError, PathError


@pytest.fixture
def memory():
    files = fsspec.filesystem("memory")
    files.pipe({"/bucket/a": b"0123456789", "/bucket/deep/er/b": b"b", "/other/c": b"c"})
    yield files
    files.store.clear()
    files.pseudo_dirs[:] = [""]


@pytest.mark.usefixtures("memory")
def test_whatever_fsspec_opens_is_an_origin():
    origin = origin_at("memory://bucket")
    origin.check()
    assert sizes(origin) == {"a": 10, "deep/er/b": 1}
    assert origin.read(origin.stat("a"), 2, 3) == b"234"
    with pytest.raises(AbsentError):
        origin.stat("c")
    with pytest.raises(AbsentError):
        origin.stat("deep")
    with pytest.raises(PathError):
        origin.stat("../other/c")


def test_a_file_that_changed_at_an_fsspec_origin_is_noticed(memory):
    origin = origin_at("memory://bucket")
    listed = origin.stat("a")
    memory.pipe("/bucket/a", b"9876543210")
    assert len(origin.read(listed, 0, 10)) == 10  # not valid before it is confirmed
    with pytest.raises(ChangedError):
        origin.confirm(listed)


@pytest.mark.usefixtures("memory")
def test_an_fsspec_origin_that_is_not_there_is_an_error():
    origin = origin_at("memory://nothing")
    with pytest.raises(OriginError, match="is not there"):
        origin.check()
    with pytest.raises(OriginError, match="cannot be listed"):
        list(origin.files())


def test_a_driver_that_tells_no_version_is_refused_file_by_file(memory, monkeypatch):
    origin = origin_at("memory://bucket")
    plain = memory.info("/bucket/a")
    files = origin._driver.files
    about = {"name": "/bucket/a", "size": plain["size"], "type": "file"}
    monkeypatch.setattr(files, "info", lambda _: about)
    with pytest.raises(OriginError, match="neither a version nor a time"):
        origin.stat("a")
    for told in ("sha", "md5Checksum", "modify", "modificationTime", "modifiedTime", "server_modified"):
        monkeypatch.setattr(files, "info", lambda _, told=told: {**about, told: "1"})
        assert origin.stat("a").version == "1-a"


def test_a_driver_that_is_missing_is_named_by_its_package():
    with pytest.raises(OriginError, match=r"pip install 'adlfs'"):
        origin_at("abfs://container/folder").check()
    with pytest.raises(OriginError, match="Protocol not known"):
        origin_at("nosuch://x").check()


def test_options_that_are_none_are_named():
    with pytest.raises(InputError, match="option client_kwargs"):
        origin_at("memory://bucket", client_kwargs="{broken")
    with pytest.raises(InputError, match="http takes manifest"):
        origin_at("http://host/data", anon="true")
