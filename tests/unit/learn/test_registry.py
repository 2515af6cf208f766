"""The registry: versions are complete or absent, verified when read, chosen, rolled back and pruned."""

import hashlib
import signal
import subprocess
import sys
import time

import pytest
from killed_steps import child_environment, kill_at_each_step

from aliquot.learn.registry import BrokenVersionError, Manifest, ModelRegistry
from aliquot.learn.scoring import Score


def manifest(version, *, accepted=True):
    return Manifest(
        version=version, created=0, winner="markov1", scores={"markov1": Score()}, sessions=10, held_back=2,
        steps=100, until_s=0.0, accepted=accepted, why="a test",
    )  # fmt: skip


@pytest.fixture
def registry(tmp_path):
    return ModelRegistry(tmp_path / "models", Manifest)


def test_what_is_added_is_read_back(registry):
    registry.add(manifest(1), {"a": b"first", "b": b"second"})
    assert registry.read(registry.manifest(1)) == {"a": b"first", "b": b"second"}
    assert registry.next_version() == 2
    assert [one.version for one in registry.versions()] == [1]


@pytest.mark.parametrize("harm", ["changed", "shorter", "gone"])
def test_a_version_that_is_not_as_it_was_written_is_never_read(registry, harm):
    registry.add(manifest(1), {"a": b"first"})
    path = registry.directory / "000001" / "a"
    if harm == "gone":
        path.unlink()
    else:
        path.write_bytes(b"fir" if harm == "shorter" else b"farst")
    with pytest.raises(BrokenVersionError, match="version 1"):
        registry.read(registry.manifest(1))


def test_a_version_written_by_an_earlier_release_is_read(registry):
    """The names in these files are a format on disk, whatever the classes are called."""
    folder = registry.directory / "000007"
    folder.mkdir()
    (folder / "tables.msgpack").write_bytes(b"first")
    checksum = hashlib.sha256(b"first").hexdigest()
    (folder / "manifest.json").write_text(
        '{"version":7,"created":1700000000000,"winner":"markov2","scores":{"markov2":{"places":9,"top1":0.5,"top5":0.7,'
        '"sure":3,"right":1.0}},"sessions":10,"held_back":2,"steps":100,"until_s":12.5,"accepted":true,"why":"better",'
        '"weights":{"markov2":0.4,"lstm":0.6},"calibration":[[0.5],[0.4]],"curve":[{"epoch":1,"learned_loss":2.0,'
        '"held_back_loss":2.5,"top1":0.4,"top5":0.6,"seconds":1.5}],"without":"","files":{"tables.msgpack":"'
        + checksum
        + '"}}'
    )
    (registry.directory / "serving.json").write_text('{"version":7,"pinned":true,"before":[3],"predictor":"markov1"}')
    (found,) = registry.versions()
    assert registry.read(found) == {"tables.msgpack": b"first"}
    assert (found.winner, found.scores["markov2"].places, found.until_s) == ("markov2", 9, 12.5)
    assert (found.curve[0].held_back_loss, found.calibration(0.5), found.weights["lstm"]) == (2.5, 0.4, 0.6)
    serving = registry.serving()
    assert (serving.version, serving.pinned, serving.before, serving.predictor) == (7, True, [3], "markov1")


def test_a_manifest_that_cannot_be_read_is_no_version(registry):
    registry.add(manifest(1), {})
    (registry.directory / "000001" / "manifest.json").write_bytes(b"{")
    assert registry.versions() == []
    assert registry.next_version() == 2


def test_the_one_before_serves_again_and_stays(registry):
    for version in (1, 2, 3):
        registry.add(manifest(version), {"a": b"x"})
        registry.serve(version)
    assert registry.roll_back().version == 2
    assert registry.serving().pinned
    assert registry.roll_back().version == 1
    with pytest.raises(BrokenVersionError, match="before"):
        registry.roll_back()
    assert registry.unpin().version == 3
    assert not registry.serving().pinned


def test_a_broken_version_is_passed_over_when_rolling_back(registry):
    for version in (1, 2, 3):
        registry.add(manifest(version), {"a": b"x"})
        registry.serve(version)
    (registry.directory / "000002" / "a").write_bytes(b"y")
    assert registry.roll_back().version == 1


def test_the_oldest_go_but_not_the_one_that_serves_nor_the_one_before(registry):
    for version in range(1, 8):
        registry.add(manifest(version), {"a": b"x"})
    registry.serve(1)
    registry.serve(2)
    registry.prune(2)
    assert [one.version for one in registry.versions()] == [1, 2, 6, 7]


def test_one_trains_at_a_time(registry):
    with registry.training(), pytest.raises(BlockingIOError), ModelRegistry(registry.directory, Manifest).training():
        pytest.fail("there were two")
    with registry.training() as work:
        assert work.is_dir()


_WRITER = """
from pathlib import Path
from test_registry import manifest
from aliquot.learn.registry import Manifest, ModelRegistry
registry = ModelRegistry(Path({path!r}), Manifest)
print("ready", flush=True)
with registry.training():
    for version in range(1, 10_000):
        registry.add(manifest(version), {{"a": bytes([version % 251]) * 200_000, "b": b"second"}})
        registry.serve(version)
        registry.prune(3)
"""


@pytest.mark.parametrize("after_s", [0.15, 0.3])
def test_whenever_a_writer_is_killed_every_version_that_is_there_is_whole(registry, after_s):
    script = _WRITER.format(path=str(registry.directory))
    writer = subprocess.Popen([sys.executable, "-c", script], env=child_environment(), stdout=subprocess.PIPE)
    assert writer.stdout.readline() == b"ready\n"
    time.sleep(after_s)
    writer.send_signal(signal.SIGKILL)
    writer.wait()
    writer.stdout.close()
    versions = registry.versions()
    for one in versions:
        assert len(registry.read(one)["a"]) == 200_000
    serving = registry.serving().version
    assert serving == 0 or registry.read(registry.manifest(serving))
    assert_swept_by_the_next_training(registry)


def assert_swept_by_the_next_training(registry):
    with registry.training():  # the lock went with the process
        pass
    assert not [path.name for path in registry.directory.iterdir() if path.is_dir() and path.name.startswith(".")]


_PRUNER = """
from test_registry import manifest
from aliquot.learn.registry import Manifest, ModelRegistry
registry = ModelRegistry(folder / "models", Manifest)
with registry.training():
    for version in range(1, 4):
        registry.add(manifest(version), {"a": b"first", "b": b"second"})
        registry.serve(version)
    arm()
    registry.prune(1)
    registry.add(manifest(4), {"a": b"first", "b": b"second"})
    registry.serve(4)
"""


def test_at_whichever_step_of_pruning_and_adding_it_is_killed_every_version_is_whole(tmp_path):
    def check(folder):
        registry = ModelRegistry(folder / "models", Manifest)
        found = [one.version for one in registry.versions()]
        assert set(found) >= {2, 3}, "the serving version and the one before stay"
        for one in registry.versions():
            assert registry.read(one) == {"a": b"first", "b": b"second"}
        assert registry.serving().version in found
        assert_swept_by_the_next_training(registry)
        assert [one.version for one in registry.versions()] == found

    assert kill_at_each_step(_PRUNER, tmp_path, check) >= 8
