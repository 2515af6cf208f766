"""The node cache with many files, large files, and paths and origins that mean harm."""

import os
import shutil

import pytest
from scripted_origin import SOON_S, cache_before, content, key, served
from web_origin import web_cache

from aliquot.storage.errors import AbsentError, OriginError, PathError, RoomError
from aliquot.storage.origins import origin_for
from aliquot.storage.origins.local import LocalOrigin
from aliquot.storage.records import Dataset, Found
from aliquot.testing.waiting import wait_until

# --- many and large -------------------------------------------------------------------------------------------


@pytest.fixture
def many(tmp_path, folders):
    """Real files, a thousand in a folder, with different contents in the folders that the tests read.

    Those of the other folders are links, because a busy disk may take minutes to create as many inodes.
    """
    root = tmp_path / "many"
    for folder in range(folders):
        (root / f"{folder:02}").mkdir(parents=True)
        first = root / f"{folder:02}" / "0000.png"
        for number in range(1000):
            path = root / f"{folder:02}" / f"{number:04}.png"
            if number == 0 or folder in {0, 12}:
                path.write_bytes(b"%d" % (1000 * folder + number))
            else:
                path.hardlink_to(first)
    yield root
    shutil.rmtree(root)


@pytest.mark.parametrize(("folders", "warmed"), [(20, 1), pytest.param(100, 100, marks=pytest.mark.long)])
def test_a_real_directory_of_many_thousand_small_files(many, directory, folders, warmed):
    chosen = [f"{number:02}/*" for number in range(warmed)]
    origin = LocalOrigin(str(many), {})
    settings = {"limit_bytes": 2**30, "revalidate_s": 60, "chunk_bytes": 2**22, "whole_bytes": 2**26}
    with cache_before(directory, origin, **settings) as cache:
        assert len(cache.listing("d")) == 1000 * folders
        assert len(cache.listing("d").names("12")) == 1000
        done = cache.warm("d", chosen).result(1200)
        assert (done.files, done.failed) == (1000 * warmed, 0)
        assert served(cache, "12/0007.png") == b"12007"
    with cache_before(directory, origin, **settings) as cache:  # the next cache finds them
        assert cache.stats().datasets["d"].files == 1000 * warmed + (warmed < 13)
        assert served(cache, "00/0999.png") == b"999"
        assert cache.empty() > 0


def test_a_directory_of_many_files_is_listed_as_it_is_read(source):
    for number in range(500):
        (source / f"{number:05}").touch()
    origin = origin_for(Dataset("d", str(source)))
    listed = origin.files()
    assert next(listed).path == "00000"
    assert sum(1 for _ in listed) == 499


def test_a_sparse_file_of_20_gb_is_read_anywhere_at_once_and_takes_no_space(source, directory):
    size, marks = 20 << 30, {0: b"begin", 10 << 30: b"middle", (20 << 30) - 3: b"end"}
    with (source / "huge").open("wb") as file:
        file.truncate(size)
        for offset, mark in marks.items():
            file.seek(offset)
            file.write(mark)
    origin = origin_for(Dataset("d", str(source)))
    settings = {"limit_bytes": 64 << 20, "chunk_bytes": 2 << 20, "revalidate_s": 60}
    with cache_before(directory, origin, **settings) as cache, cache.open(key("huge")).result(SOON_S) as handle:
        for offset, mark in marks.items():
            assert handle.read(offset, len(mark)).result(SOON_S) == mark
        assert handle.read(5 << 30, 1 << 20).result(SOON_S) == bytes(1 << 20)
        assert cache.stats().used_bytes <= 16 * (2 << 20)  # space is reserved for running transfers
        on_disk = sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())
        assert on_disk < 8 << 20
        with pytest.raises(RoomError, match="--cache-size"):
            cache.fetch(key("huge")).result(SOON_S)


# --- hostile --------------------------------------------------------------------------------------------------


def test_paths_outside_a_dataset_are_refused(source, directory, tmp_path):
    (tmp_path / "secret").write_text("secret")
    (source / "link").symlink_to(tmp_path / "secret")
    (source / "a").write_bytes(b"a")
    origin = origin_for(Dataset("d", str(source)))
    with cache_before(directory, origin) as cache:
        for path in ("../secret", "a/../../secret", str(tmp_path / "secret"), "link", "./a", "a\0"):
            with pytest.raises(PathError):
                cache.open(key(path)).result(SOON_S)
        with pytest.raises(AbsentError):
            cache.open(key("..%2fsecret")).result(SOON_S)
        assert list(cache.listing("d").files) == ["a"]
        assert served(cache, "a") == b"a"
        assert cache.stats().datasets["d"].files == 1


def test_failed_transfers_leave_no_open_descriptors(directory):
    def fds():
        return len(os.listdir("/proc/self/fd"))  # noqa: PTH208

    before = fds()
    for _ in range(2):
        with web_cache(directory, {"a": content("a"), "b": content("b")}) as (server, cache):
            server.cut_after, server.cuts_left = 1000, -1
            futures = [cache.open(key("a")), cache.fetch(key("b"))]
            futures[1].cancel()
            with pytest.raises(OriginError):
                futures[0].result(SOON_S)
            server.cut_after = None
            with cache.open(key("a")).result(SOON_S) as handle:
                assert handle.found is Found.FETCHED
    # The test's own web server closes its connections in threads of its own.
    wait_until(fds, lambda count: count <= before, what="all descriptors to be closed")
