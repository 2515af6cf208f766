"""`aliquot usage` and `aliquot top` on functions that share a device, and what Prometheus is given of it."""

import os
import time
from pathlib import Path

import msgspec
import pytest
from awaiting import wait_for_record
from live_platform import QuickPlatform

from aliquot.core.events import UtilisationMeasured
from aliquot.live.invocations.journal.writer import JournalStep
from aliquot.live.store.journal import read_journal
from aliquot.testing.waiting import wait_until

WORK = """
import time
def main(args):
    held = bytearray(24 * 2**20)
    until = time.monotonic() + args["seconds"]
    while time.monotonic() < until:
        pass
    return {"held": len(held)}
"""
CPU_TREE = Path("/sys/fs/cgroup/cpu")

pytestmark = pytest.mark.skipif(
    not (os.access(CPU_TREE, os.W_OK) and (CPU_TREE / "cpu.shares").exists()),
    reason="control groups (version 1) cannot be written here",
)


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    """A platform on which two functions worked side by side. `seen`, `screen` and `figures` were taken meanwhile."""
    folder = tmp_path_factory.mktemp("usage")
    with QuickPlatform(folder, "--devices", "host:1", "--sharing", "hard", "--usage-size", "1MiB") as platform:
        shares = {"less": 0.25, "more": 0.5}
        for name, share in shares.items():
            annotations = [{"key": "gpu-share", "value": share}]
            platform.deploy(name, WORK, annotations=annotations, limits={"memory": 128, "timeout": 60_000})
        with platform.client() as client:
            ids = [client.post(f"actions/{name}", json={"seconds": 60}).json()["activationId"] for name in shares]
            wait_until(
                lambda: platform.operate("GET", "status")["usage"],
                lambda usage: len(usage) == 2 and all(one["compute_s"] > 0.5 for one in usage),
                what="processor time of both",
            )
            platform.figures = platform.metrics()
            platform.seen = platform.json("top", "--once")
            platform.screen = platform.aliquot("top", "--once")
            for activation in ids:
                client.delete(f"activations/{activation}").raise_for_status()
                wait_for_record(client, activation)
        yield platform


def test_top_shows_what_each_sandbox_asked_for_and_uses(platform):
    sandboxes = {one["function"]: one for one in platform.seen["sandboxes"]}
    for name, share in (("less", 0.25), ("more", 0.5)):
        assert sandboxes[name]["share"] == share
        assert sandboxes[name]["share_ceiling"] == share
        assert 0 < sandboxes[name]["share_used"] < share + 0.1  # less when the machine has other work
        assert 24 * 2**20 < sandboxes[name]["device_bytes"] < 128 * 2**20
    (device,) = [device for device in platform.seen["devices"] if device["kind"] == "host"]
    assert 0 < device["utilisation"] < 0.9
    for column in ("used", "borrowed", "lent", "share", "most"):
        assert column in platform.screen


def test_prometheus_is_given_figures_by_function_and_device(platform):
    labels = '{action="less",device="host-1",namespace="guest"}'
    figures = dict(line.rsplit(" ", 1) for line in platform.figures.splitlines() if not line.startswith("#"))
    assert float(figures[f"aliquot_compute_seconds_total{labels}"]) > 0.1
    assert float(figures[f"aliquot_used_device_bytes{labels}"]) > 24 * 2**20
    assert float(figures[f"aliquot_share_requested{labels}"]) == 0.25
    assert float(figures['aliquot_device_utilisation{device="host-1",kind="host"}']) > 0


def test_usage_shows_what_was_used_against_what_was_asked_for(platform):
    found = {row["function"]: row for row in platform.json("usage")}
    assert found.keys() == {"less", "more"}
    for name, share in (("less", 0.25), ("more", 0.5)):
        row = found[name]
        assert row["request"] == share
        assert 0 < row["share"] < share + 0.1
        assert row["peak_bytes"] > 24 * 2**20
        assert len(row["windows"]) > 10, "each has 100 ms"
        assert row["compute_s"] == pytest.approx(sum(window["share"] for window in row["windows"]) / 10, abs=0.01)
    shown = platform.aliquot("usage", "more")
    assert "deviation" in shown
    assert "50%" in shown
    assert "less" not in shown


def test_one_sandbox_or_each_can_be_asked_for(platform):
    both = platform.json("usage", "--each")
    (one,) = platform.json("usage", "/guest/less", "--window", "1s")
    assert one["sandboxes"] in [row["sandboxes"] for row in both]
    (same,) = platform.json("usage", "--sandbox", one["sandboxes"][0])
    assert same["function"] == "less"
    assert "no samples of that" in platform.aliquot("usage", "nobody")


def test_usage_draws_a_picture(platform):
    picture = platform.folder / "usage.svg"
    platform.aliquot("usage", "--plot", picture)
    drawn = picture.read_text()
    for text in ("host-1: compute", "guest/less", "guest/more", "requested", "% of the device", "MiB", "seconds since"):
        assert text in drawn, text


def test_what_usage_cannot_do_is_said(platform, tmp_path):
    assert "nothing has run on its accelerators" in platform.aliquot("usage", "--data", tmp_path, code=2)
    assert "--window: 1ms is too short; it takes 20ms or more" in platform.aliquot("usage", "--window", "1ms", code=2)
    assert "--last" in platform.aliquot("usage", "--last", "soon", code=2)
    assert "--usage-size" in platform.aliquot("up", "--usage-size", "1KiB", "--data", tmp_path, code=2)


def test_the_core_is_told_about_once_a_second_and_the_file_outlives_a_kill(tmp_path):
    def measured():
        steps = (
            msgspec.msgpack.decode(entry.body, type=JournalStep)
            for entry in read_journal(tmp_path / "data")
            if entry.number
        )
        return [event for step in steps for event in step.events if isinstance(event, UtilisationMeasured)]

    with QuickPlatform(tmp_path, "--devices", "host:1") as platform:
        platform.deploy("work", WORK, annotations=[{"key": "gpu-share", "value": 1}])
        with platform.client() as client:
            began_s = time.monotonic()
            client.post("actions/work", json={"seconds": 60})
            wait_until(measured, lambda told: len(told) >= 2, what="two measurements in the journal", pause_s=0.1)
        platform.kill()
        lasted_s = time.monotonic() - began_s
        (row,) = platform.json("usage")
        assert row["function"] == "work"
        assert row["active_s"] > 1
        told = measured()
        assert 2 <= len(told) <= lasted_s
        assert {event.device for event in told} == {"host-1"}
        assert all(0 < event.utilisation <= 1 for event in told)
        platform.start()
        assert platform.json("usage")[0]["function"] == "work"
