"""Views of datasets whose origin is away, silent or slow, and datasets that are removed."""

import errno
import os
import threading

import pytest
from mounted_views import READ, has_views, make_origin, md5, mounted, mounted_view, until

from aliquot.storage.origins.local import LocalOrigin
from aliquot.storage.view import contents

pytestmark = [
    pytest.mark.skipif(not has_views(), reason="this machine has no views"),
    pytest.mark.usefixtures("origin"),
]


@pytest.fixture
def origin(tmp_path):
    return make_origin(tmp_path / "origin")


def test_an_origin_that_is_away_is_an_error_with_a_reason_and_what_is_cached_stays_readable(tmp_path):
    with mounted_view(tmp_path, patience_s=0.1) as seen:
        assert (seen.place / "data" / "plain.txt").read_text() == "hello"
        seen.origin.down = True
        with pytest.raises(OSError, match="Input/output") as raised:
            (seen.place / "data" / "a" / "b" / "numbers").read_bytes()
        assert raised.value.errno == errno.EIO
        assert seen.told[-1].found is None
        assert "away" in seen.told[-1].error
        assert (seen.place / "data" / "plain.txt").read_text() == "hello"


def test_a_dataset_that_cannot_be_listed_is_there_and_says_why_when_it_is_entered(tmp_path):
    def go_away(origin):
        origin.down = True

    with mounted_view(tmp_path, go_away) as seen:
        assert os.listdir(seen.place) == ["data"]  # noqa: PTH208
        with pytest.raises(OSError, match="Input/output"):
            list((seen.place / "data").iterdir())
        assert "away" in seen.told[-1].error
        seen.origin.down = False
        assert (seen.place / "data" / "plain.txt").read_text() == "hello"


def test_a_removed_dataset_is_gone_and_comes_back_to_whom_it_was_not_taken_from(tmp_path):
    with mounted_view(tmp_path) as seen:
        path = seen.place / "data" / "plain.txt"
        with path.open() as kept:
            seen.views.drop("data")
            until(lambda: not os.listdir(seen.place))  # noqa: PTH208
            with pytest.raises(FileNotFoundError):
                (seen.place / "data" / "a" / "b" / "numbers").open()
            assert kept.read() == "hello"
        seen.views.renew("data")
        until(lambda: os.listdir(seen.place))  # noqa: PTH208
        assert path.read_text() == "hello"


def test_a_dataset_that_is_taken_from_a_sandbox_does_not_come_back_to_it_under_its_name(tmp_path):
    with mounted_view(tmp_path) as seen, mounted(tmp_path / "other") as (device, other):
        path = seen.place / "data" / "plain.txt"
        seen.views.hide("data", [2, 3])
        seen.views.open(2, device, ["data"])  # the view arrives after the message that hides the dataset
        assert os.listdir(other) == []  # noqa: PTH208
        with path.open() as kept, os.scandir(seen.place / "data") as _:
            inside = os.open(seen.place / "data", os.O_RDONLY)
            seen.views.hide("data", [1])
            until(lambda: not os.listdir(seen.place))  # noqa: PTH208
            seen.views.renew("data")  # other sandboxes see a new dataset of this name
            for name in ("plain.txt", "a/b/numbers"):  # the kernel knows the inode of one of them
                with pytest.raises(FileNotFoundError):
                    (seen.place / "data" / name).open()
            with pytest.raises(OSError, match="Stale"):
                os.listdir(inside)  # noqa: PTH208
            os.close(inside)
            assert kept.read() == "hello"


def test_an_origin_that_answers_no_more_holds_up_nobody_else(tmp_path):
    """A listing that never ends blocks only the readers of its own dataset."""
    go = threading.Event()

    def stand_still(origin):
        listed = origin.files

        def files():
            go.wait()
            return listed()

        origin.files = files

    with mounted_view(tmp_path, stand_still) as seen:
        waiting = seen.reader(READ, "data/plain.txt")
        until(lambda: seen.waiting() == 1)
        assert os.listdir(seen.place) == ["data"]  # noqa: PTH208
        seen.views.drop("data")
        with waiting:
            assert waiting.wait() != 0
        go.set()
        seen.views.renew("data")
        until((seen.place / "data" / "plain.txt").exists)
        assert (seen.place / "data" / "plain.txt").read_text() == "hello"


class SilentOrigin(LocalOrigin):
    """An origin whose listing waits for the test."""

    def __init__(self, place, go):
        super().__init__(str(place), {})
        self.go = go

    def files(self):
        self.go.wait()
        return super().files()


def test_many_origins_that_answer_no_more_hold_up_nobody_else(tmp_path, origin):
    go = threading.Event()
    silent = {f"silent-{number}": SilentOrigin(origin, go) for number in range(20)}
    with mounted_view(tmp_path, others=silent) as seen:
        waiting = [seen.reader(READ, f"{name}/plain.txt") for name in silent]
        until(lambda: seen.waiting() == len(silent))
        assert (seen.place / "data" / "plain.txt").read_text() == "hello"
        assert all(reader.poll() is None for reader in waiting)
        go.set()
        for reader in waiting:
            assert reader.communicate()[0].strip() == md5(b"hello")


def test_a_file_that_was_away_for_a_moment_is_shown_again(tmp_path, origin, monkeypatch):
    monkeypatch.setattr(contents, "CORRECTION_LIFETIME_S", 0.1)
    with mounted_view(tmp_path) as seen:
        shown = seen.place / "data" / "plain.txt"
        assert shown.exists()
        (origin / "plain.txt").rename(tmp_path / "away")
        with pytest.raises(FileNotFoundError):
            shown.read_text()
        (tmp_path / "away").rename(origin / "plain.txt")
        until(shown.exists)
        assert shown.read_text() == "hello"
