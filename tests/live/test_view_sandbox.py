"""Datasets as sandboxes see them: real sandboxes, real mounts, a real cache that answers."""

import asyncio
import hashlib
import os
import subprocess
import sys
from concurrent.futures import Future
from pathlib import Path

import pytest
from places import SUPPORT
from sandboxes import needs_nodejs, play, result, strongest
from viewers import descriptors_of_fuse, viewer

from aliquot.live.node.base import Status
from aliquot.live.node.isolation import NO_ISOLATION
from aliquot.live.node.sandbox_views import SandboxViews
from aliquot.storage.records import Found
from aliquot.testing.waiting import wait_on_loop

pytestmark = pytest.mark.skipif(not strongest().views, reason="this machine has no views")

# Runs a snippet that leaves its finding in `found`.
RUN = "def main(args):\n    space = {'args': args}\n    exec(args['code'], space)\n    return {'found': space['found']}"
NUMBERS = bytes(range(256)) * 20_000


@pytest.fixture
def origin(tmp_path):
    place = tmp_path / "origin"
    (place / "train" / "deep").mkdir(parents=True)
    (place / "train" / "deep" / "numbers.bin").write_bytes(NUMBERS)
    (place / "labels.txt").write_text("cat\ndog\n")
    return place


def see(tmp_path, origin, scene, **settings):
    """Play a scene on a node whose sandboxes see the dataset `pictures`, and check that nothing stays open."""
    with viewer(tmp_path / "cache", {"pictures": origin, "secret": origin}) as shown:

        async def with_views(rig):
            rig.node._views = SandboxViews(shown)
            await scene(rig, shown)

        play(tmp_path / "data", with_views, **settings)
        assert not shown.cache.stats().open
    assert not descriptors_of_fuse()
    assert str(tmp_path) not in Path("/proc/self/mounts").read_text()


async def found(rig, sandbox, code, **args):
    outcome = await rig.run(sandbox, {"code": code, **args})
    assert outcome.status == Status.SUCCESS, result(outcome)
    return result(outcome)["found"]


def test_a_function_and_its_subprocesses_read_a_dataset_as_ordinary_files(tmp_path, origin):
    code = """
import hashlib, mmap, os, subprocess
path = "/datasets/pictures/train/deep/numbers.bin"
whole = open(path, "rb").read()
by_cat = subprocess.run(["cat", path], capture_output=True, check=True).stdout
with open(path, "rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapping:
    mapped = bytes(mapping)
found = {
    "sums": [hashlib.sha256(each).hexdigest() for each in (whole, by_cat, mapped)],
    "walk": [[top, sorted(below), sorted(files)] for top, below, files in os.walk("/datasets")],
    "lines": open("/datasets/pictures/labels.txt").read().splitlines(),
}
"""

    async def scene(rig, shown):
        sandbox = await rig.started(RUN, datasets=("pictures",))
        seen = await found(rig, sandbox, code)
        assert seen["sums"] == [hashlib.sha256(NUMBERS).hexdigest()] * 3
        assert seen["lines"] == ["cat", "dog"]
        assert seen["walk"] == [
            ["/datasets", ["pictures"], []],
            ["/datasets/pictures", ["train"], ["labels.txt"]],
            ["/datasets/pictures/train", ["deep"], []],
            ["/datasets/pictures/train/deep", [], ["numbers.bin"]],
        ]
        told = [(each.key.path, each.size, each.found) for each in shown.told]
        assert told == [
            ("train/deep/numbers.bin", len(NUMBERS), Found.FETCHED),
            ("train/deep/numbers.bin", len(NUMBERS), Found.CACHED),
            ("train/deep/numbers.bin", len(NUMBERS), Found.CACHED),
            ("labels.txt", 8, Found.FETCHED),
        ]

    see(tmp_path, origin, scene)


def test_nothing_can_be_written_and_no_other_dataset_is_there(tmp_path, origin):
    code = """
import os
def attempt(do):
    try:
        do()
    except OSError as error:
        return os.strerror(error.errno)
    return "done"
found = [
    attempt(lambda: open("/datasets/pictures/labels.txt", "a")),
    attempt(lambda: open("/datasets/pictures/new", "w")),
    attempt(lambda: os.mkdir("/datasets/mine")),
    attempt(lambda: os.remove("/datasets/pictures/labels.txt")),
    attempt(lambda: os.chmod("/datasets/pictures/labels.txt", 0o777)),
    attempt(lambda: open("/datasets/secret/labels.txt")),
    attempt(lambda: open("/datasets/pictures/../secret/labels.txt")),
    attempt(lambda: open("/dev/fuse", "rb+")),
]
"""

    async def scene(rig, _shown):
        sandbox = await rig.started(RUN, datasets=("pictures",))
        seen = await found(rig, sandbox, code)
        # Landlock refuses changes before the file system is asked.
        assert set(seen[:5]) <= {"Read-only file system", "Permission denied"}
        assert seen[5:] == ["No such file or directory"] * 3

    see(tmp_path, origin, scene)


def test_a_function_without_datasets_has_no_place_for_them(tmp_path, origin):
    async def scene(rig, shown):
        sandbox = await rig.started(RUN)
        assert await found(rig, sandbox, "import os\nfound = os.path.exists('/datasets')") is False
        assert not shown.shown

    see(tmp_path, origin, scene)


def test_sandboxes_see_their_own_datasets_and_the_second_start_has_a_cell_that_was_ready(tmp_path, origin):
    async def scene(rig, _shown):
        look = "import os\nfound = os.listdir('/datasets')"
        first = await rig.started(RUN, datasets=("pictures",))
        second = await rig.started(RUN, datasets=("secret",), tenant="other")
        both = await rig.started(RUN, datasets=("secret", "pictures"))
        assert await found(rig, first, look) == ["pictures"]
        assert await found(rig, second, look) == ["secret"]
        assert await found(rig, both, look) == ["pictures", "secret"]

    see(tmp_path, origin, scene)


@needs_nodejs
def test_a_node_js_function_reads_them_too(tmp_path, origin):
    code = """
const fs = require("fs");
function main(args) { return {text: fs.readFileSync("/datasets/pictures/labels.txt", "utf8")}; }
"""

    async def scene(rig, _shown):
        sandbox = await rig.started(code, kind="nodejs:20", datasets=("pictures",))
        assert result(await rig.run(sandbox)) == {"text": "cat\ndog\n"}

    see(tmp_path, origin, scene)


def test_a_sandbox_that_is_stopped_while_it_waits_for_a_file_leaves_nothing_behind(tmp_path, origin):
    async def scene(rig, shown):
        waits = asyncio.Event()
        loop = asyncio.get_running_loop()
        real = shown.cache.open

        def slow(key):
            if key.path == "labels.txt":
                loop.call_soon_threadsafe(waits.set)
                return Future()
            return real(key)

        shown.cache.open = slow
        sandbox = await rig.started(RUN, datasets=("pictures",))
        rig.request(sandbox, {"code": "found = open('/datasets/pictures/labels.txt').read()"})
        await waits.wait()
        rig.node.stop_sandbox(sandbox)
        # Another one is not kept waiting.
        other = await rig.started(RUN, datasets=("pictures",))
        code = "found = len(open('/datasets/pictures/train/deep/numbers.bin', 'rb').read())"
        assert await found(rig, other, code) == len(NUMBERS)
        await wait_on_loop(
            lambda: len(shown.shown), lambda count: count <= 1, what="the stopped sandbox's view to close"
        )
        assert shown.closed == [sandbox]

    see(tmp_path, origin, scene)


def test_what_cannot_be_had_is_an_error_in_the_function_and_told_with_its_reason(tmp_path, origin):
    code = """
try:
    found = open("/datasets/pictures/labels.txt").read()
except OSError as error:
    found = error.errno
"""

    async def scene(rig, shown):
        sandbox = await rig.started(RUN, datasets=("pictures",))
        await found(rig, sandbox, "import os\nfound = os.listdir('/datasets/pictures')")
        (origin / "labels.txt").unlink()
        assert await found(rig, sandbox, code) == 2
        assert [(each.key.path, each.found) for each in shown.told] == [("labels.txt", None)]
        assert "labels.txt" in shown.told[0].error

    see(tmp_path, origin, scene)


def test_when_nobody_shows_datasets_whoever_looks_gets_an_error_and_does_not_wait(tmp_path):
    async def scene(rig):
        sandbox = await rig.started(RUN, datasets=("pictures",))
        code = "import os\ntry:\n    found = os.listdir('/datasets')\nexcept OSError as error:\n    found = error.errno"
        assert await found(rig, sandbox, code) in {107, 103, 5}  # not connected, aborted

    play(tmp_path / "data", scene)


def test_without_mounts_of_their_own_functions_with_datasets_are_refused_with_a_reason(tmp_path):
    async def scene(rig):
        outcome = await rig.not_started(RUN, datasets=("pictures",))
        assert outcome.status == Status.INTERNAL_ERROR
        assert "aliquot doctor" in result(outcome)["error"]

    play(tmp_path / "data", scene, isolation=NO_ISOLATION)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_an_ordinary_user_who_may_open_the_device_shows_datasets_too(tmp_path):
    here = Path(__file__)
    wanted = [
        f"{here}::{test.__name__}"
        for test in (
            test_a_function_and_its_subprocesses_read_a_dataset_as_ordinary_files,
            test_a_sandbox_that_is_stopped_while_it_waits_for_a_file_leaves_nothing_behind,
        )
    ]
    command = [sys.executable, SUPPORT / "as_ordinary_user.py", tmp_path]
    pytest_there = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", f"--basetemp={tmp_path}/there"]
    done = subprocess.run([*command, *pytest_there, *wanted], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "s" not in done.stdout.split()[0]  # none was skipped
