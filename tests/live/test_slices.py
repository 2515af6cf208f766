"""Slices of virtual devices on this machine: asked for by annotations, enforced by the kernel."""

import os
import subprocess
import sys
import time

import pytest

from aliquot.core.model import DeviceSpec
from aliquot.live.device import host, slice_groups
from aliquot.live.device.drivers import Drivers
from aliquot.live.device.host import HostDriver
from aliquot.live.device.slice_groups import ROOT, quota_us
from aliquot.live.replay import replay_file
from aliquot.testing.server import LiveServer

LOOP = "while True: pass"
WORK = """
import time
def main(args):
    until, count = time.monotonic() + args["seconds"], 0
    while time.monotonic() < until:
        for _ in range(1000):
            count += 1
    return {"count": count}
"""
DEVICE = DeviceSpec("host-1", "host")


def can_enforce():
    return os.access(ROOT / "cpu", os.W_OK) and (ROOT / "cpu" / "cpu.shares").exists()


enforced = pytest.mark.skipif(not can_enforce(), reason="control groups (version 1) cannot be written here")


@pytest.fixture
def driver():
    driver = HostDriver(f"aliquot-test-{os.getpid()}", [DEVICE], sorted(os.sched_getaffinity(0)))
    yield driver
    driver.close()
    assert not list((ROOT / "cpu").glob(f"aliquot-test-{os.getpid()}*"))


@pytest.fixture
def loops(driver):
    """Start loops with these slices; afterwards they are gone."""
    processes = []

    def start(*slices):
        for number, (share, ceiling) in enumerate(slices, start=1):
            driver.resize(number, share, ceiling)
            processes.append(subprocess.Popen([sys.executable, "-S", "-c", LOOP]))
            driver.attach(number, "host-1", [processes[-1].pid])
        return processes

    yield start
    for number, process in enumerate(processes, start=1):
        driver.swap_in(number)
        process.kill()
        process.wait()
        driver.detach(number)


def parts(driver, seconds):
    """Of what was used by all, over a while."""
    before = {used.sandbox: used.compute_s for used in driver.used()}
    time.sleep(seconds)
    spent = {used.sandbox: used.compute_s - before[used.sandbox] for used in driver.used()}
    return [spent[number] / sum(spent.values()) for number in sorted(spent)]


@enforced
def test_weights_divide_a_device_that_all_want(driver, loops):
    loops((0.3, 1), (0.7, 1))
    assert parts(driver, 1.5) == pytest.approx([0.3, 0.7], abs=0.03)


@enforced
def test_a_hard_slice_gets_no_more_though_nobody_else_wants_it(driver, loops):
    loops((0.25, 0.25))
    began = time.monotonic()
    (before,) = driver.used()
    time.sleep(1)
    (after,) = driver.used()
    assert (after.compute_s - before.compute_s) / (time.monotonic() - began) < 0.3


@enforced
def test_a_slice_can_be_changed_while_it_is_in_use(driver, loops):
    loops((0.5, 1), (0.5, 1))
    driver.resize(1, 0.1, 1)
    driver.resize(2, 0.9, 1)
    assert parts(driver, 1.5) == pytest.approx([0.1, 0.9], abs=0.03)


@enforced
def test_what_is_swapped_out_uses_nothing_until_it_is_back(driver, loops):
    loops((0.5, 1))
    assert driver.swap_out(1)
    (before,) = driver.used()
    time.sleep(0.3)
    (still,) = driver.used()
    assert still.compute_s - before.compute_s < 0.05
    driver.swap_in(1)
    time.sleep(0.3)
    assert driver.used()[0].compute_s - still.compute_s > 0.01


@enforced
def test_what_a_killed_server_left_standing_still_is_let_go(loops, driver):
    (process,) = loops((0.5, 1))
    driver.swap_out(1)
    process.kill()
    time.sleep(0.1)
    assert process.poll() is None  # what stands still cannot even end
    again = HostDriver(f"aliquot-test-{os.getpid()}", [DEVICE], sorted(os.sched_getaffinity(0)))
    process.wait()
    assert again.enforcement.lacking == ()


@enforced
def test_the_memory_of_a_sandbox_is_counted_and_none_of_it_on_the_device_while_it_is_swapped_out(tmp_path):
    drivers = Drivers(f"aliquot-test-{os.getpid()}", [DEVICE])
    held = tmp_path / "memory.usage_in_bytes"
    held.write_text("4096\n")
    process = subprocess.Popen([sys.executable, "-S", "-c", LOOP])
    try:
        drivers.place(1, "host-1")
        drivers.attach(1, [process.pid], held)
        assert [used.memory_bytes for used in drivers.used()] == [4096]
        held.write_text("8192\n")
        time.sleep(0.05)  # it is looked up when it has run again
        assert [used.memory_bytes for used in drivers.used()] == [8192]
        drivers.swap_out(1)
        assert [used.memory_bytes for used in drivers.used()] == [0]
        drivers.swap_in(1)
        assert [used.memory_bytes for used in drivers.used()] == [8192]
    finally:
        process.kill()
        process.wait()
        drivers.detach(1)
        assert drivers.used() == []
        drivers.close()


def test_without_control_groups_it_says_that_nothing_is_enforced(monkeypatch, tmp_path):
    monkeypatch.setattr(host, "ROOT", tmp_path)
    monkeypatch.setattr(slice_groups, "ROOT", tmp_path)
    driver = HostDriver("aliquot-test", [DEVICE], [0])
    driver.resize(1, 0.5, 0.5)
    driver.attach(1, "host-1", [os.getpid()])
    assert driver.enforcement.compute == "not enforced"
    assert "no controller cpu" in driver.enforcement.lacking[0]
    assert driver.used() == []
    assert not driver.swap_out(1)


def test_a_short_quota_gets_a_longer_period_and_never_less_than_the_kernel_takes():
    assert quota_us(0.5) == (5000, 10_000)
    assert quota_us(0.02) == (1000, 50_000)
    assert quota_us(0.0001) == (1000, 1_000_000)


def test_a_slice_that_comes_before_its_sandbox_is_kept_for_it(monkeypatch, tmp_path):
    monkeypatch.setattr(host, "ROOT", tmp_path)
    drivers = Drivers("aliquot-test", [DeviceSpec("cpu", "cpu"), DEVICE])
    drivers.resize(1, 0.25, 1)
    drivers.place(1, "host-1")
    assert drivers._by_kind["host"]._allotted == {1: (0.25, 1)}
    drivers.resize(2, 0.25, 1)
    drivers.detach(2)  # it never came
    assert drivers._early == {}


@enforced
@pytest.mark.parametrize("sharing", ["hard", "elastic_guarded"])
def test_two_functions_share_a_device_as_their_annotations_say(tmp_path, sharing):
    def asked(share):
        return {"annotations": [{"key": "gpu-share", "value": share}]}

    with LiveServer(tmp_path / "data", "--devices", "host:1", "--sharing", sharing) as server:
        server.deploy("less", WORK, **asked(0.25))
        server.deploy("more", WORK, **asked(0.75))
        with server.client() as client:
            for name in ("less", "more"):
                client.post(f"actions/{name}", params={"blocking": "true"}, json={"seconds": 0})
            ids = [
                client.post(f"actions/{name}", json={"seconds": 2}).json()["activationId"] for name in ("less", "more")
            ]
            counts = []
            for activation in ids:
                while (answer := client.get(f"activations/{activation}/result")).status_code != 200:
                    time.sleep(0.05)
                counts.append(answer.json()["result"]["count"])
        assert counts[0] / sum(counts) == pytest.approx(0.25, abs=0.05)
    assert replay_file(tmp_path / "data").differences == []
