"""Slices of virtual devices on this machine: asked for by annotations, enforced by the kernel."""

import os
import subprocess
import sys
import time

import httpx
import pytest
from awaiting import wait_until_busy

from aliquot.core.model import DeviceSpec
from aliquot.live.device import slices as ways
from aliquot.live.device.drivers import Drivers
from aliquot.live.device.host import HostDriver
from aliquot.live.device.slices.base import ROOT, quota_us
from aliquot.live.invocations.journal.replay import replay_file
from aliquot.testing.server import LiveServer
from aliquot.testing.waiting import wait_until

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
    """Start loops with these slices, and end them after the test."""
    processes = []

    def start(*slices):
        for number, (share, ceiling) in enumerate(slices, start=1):
            driver.resize(number, share, ceiling)
            processes.append(subprocess.Popen([sys.executable, "-S", "-c", LOOP]))
            driver.attach(number, ["host-1"], [processes[-1].pid])
        return processes

    yield start
    for number, process in enumerate(processes, start=1):
        process.kill()
        process.wait()
        driver.detach(number)


def parts(driver):
    """Return each sandbox's part of the next second of processor time that all of them use together."""
    before = {used.sandbox: used.compute_s for used in driver.usage()}

    def spent():
        return {used.sandbox: used.compute_s - before[used.sandbox] for used in driver.usage()}

    found = wait_until(spent, lambda found: sum(found.values()) >= 1, what="a second of processor time")
    return [found[number] / sum(found.values()) for number in sorted(found)]


@enforced
def test_weights_divide_a_device_that_all_want(driver, loops):
    loops((0.3, 1), (0.7, 1))
    assert parts(driver) == pytest.approx([0.3, 0.7], abs=0.03)


@enforced
def test_a_hard_slice_gets_no_more_though_nobody_else_wants_it(driver, loops):
    loops((0.25, 0.25))
    began = time.monotonic()
    (before,) = driver.usage()
    time.sleep(1)
    (after,) = driver.usage()
    assert (after.compute_s - before.compute_s) / (time.monotonic() - began) < 0.3


@enforced
def test_a_slice_can_be_changed_while_it_is_in_use(driver, loops):
    loops((0.5, 1), (0.5, 1))
    driver.resize(1, 0.1, 1)
    driver.resize(2, 0.9, 1)
    assert parts(driver) == pytest.approx([0.1, 0.9], abs=0.03)


@enforced
def test_the_memory_of_a_sandbox_is_counted_and_none_of_it_on_the_device_while_it_is_swapped_out(tmp_path):
    drivers = Drivers(f"aliquot-test-{os.getpid()}", [DEVICE])
    held = tmp_path / "memory.usage_in_bytes"
    held.write_text("4096\n")
    process = subprocess.Popen([sys.executable, "-S", "-c", LOOP])
    try:
        drivers.place(1, ("host-1",))
        drivers.attach(1, [process.pid])
        drivers.count_memory(1, held)
        assert [used.memory_bytes for used in drivers.usage()] == [4096]
        held.write_text("8192\n")
        # It is looked up when the sandbox has run again.
        wait_until(
            lambda: [used.memory_bytes for used in drivers.usage()], lambda held: held == [8192], what="the memory"
        )
        drivers.swap_out(1)
        assert [used.memory_bytes for used in drivers.usage()] == [0]
        drivers.swap_in(1)
        assert [used.memory_bytes for used in drivers.usage()] == [8192]
    finally:
        process.kill()
        process.wait()
        drivers.detach(1)
        assert drivers.usage() == []
        drivers.close()


def test_without_control_groups_it_says_that_nothing_is_enforced(monkeypatch, tmp_path):
    monkeypatch.setattr(ways, "ROOT", tmp_path)
    monkeypatch.setattr(ways, "is_mounted", lambda: False)
    driver = HostDriver("aliquot-test", [DEVICE], [0])
    driver.resize(1, 0.1, 0.1)
    with subprocess.Popen([sys.executable, "-S", "-c", LOOP]) as process:
        driver.attach(1, ["host-1"], [process.pid])
        assert driver.enforcement.compute == "not enforced (nice, cores)"
        assert "slices of host devices are not enforced" in driver.enforcement.lacking[0]
        assert "no controller cpu" in driver.enforcement.lacking[0]
        assert os.sched_getaffinity(process.pid) == {0}
        assert os.getpriority(os.PRIO_PROCESS, process.pid) == 10
        wait_until(lambda: driver.usage()[0].compute_s, what="the loop to use the processor")
        process.kill()
    driver.detach(1)
    assert driver.usage() == []


def test_a_short_quota_gets_a_longer_period_and_never_less_than_the_kernel_takes():
    assert quota_us(0.5) == (10_000, 20_000)
    assert quota_us(0.02) == (1000, 50_000)
    assert quota_us(0.0001) == (1000, 1_000_000)


def test_a_slice_is_kept_for_a_sandbox_that_starts_and_ignored_for_one_that_never_did(monkeypatch, tmp_path):
    monkeypatch.setattr(ways, "ROOT", tmp_path)
    drivers = Drivers("aliquot-test", [DeviceSpec("cpu", "cpu"), DEVICE])
    drivers.place(1, ("host-1",))
    drivers.resize(1, 0.25, 1)  # its process is not there yet
    drivers.resize(2, 0.25, 1)
    assert drivers._by_kind["host"]._allotted == {1: (0.25, 1)}
    drivers.detach(2)
    drivers.detach(1)
    assert drivers._by_kind["host"]._allotted == {}


WHERE = """
import os
from pathlib import Path
KEPT = b"x" * (40 * 2**20)
CALLS = []
def main(args):
    return {
        "device": os.environ["ALIQUOT_DEVICE"],
        "share": os.environ["ALIQUOT_SHARE"],
        "cores": len(os.sched_getaffinity(0)),
        "calls": CALLS.append(1) or len(CALLS),
    }
"""


def asks(**annotations):
    return {"annotations": [{"key": f"gpu-{key}", "value": value} for key, value in annotations.items()]}


@enforced
def test_whole_devices_are_held_together_and_memory_that_is_oversubscribed_is_swapped(tmp_path):
    options = ("--devices", "host:2", "--device-memory", "100MiB", "--policy", "fcfs")  # it brings nothing back unasked
    with LiveServer(tmp_path / "data", *options) as server, server.client() as client:

        def call(name):
            record = client.post(f"actions/{name}", params={"blocking": "true"}, json={}).json()
            said = {each["key"]: each["value"] for each in record["annotations"]}
            result = record["response"]["result"]
            return result.pop("calls"), result, said["device"], said["start"]

        cores = min(2, len(os.sched_getaffinity(0)))
        server.deploy("both", WHERE, **asks(share=2, memory="60MiB"))
        server.deploy("part", WHERE, **asks(share=0.5, memory="60MiB"))
        together = {"device": "host-1,host-2", "share": "2", "cores": cores}
        assert call("both") == (1, together, "host-1,host-2", "cold")
        assert call("both") == (2, together, "host-1,host-2", "warm")
        (there,) = status(server)["sandboxes"]
        assert (there["device"], there["state"], there["share"]) == ("host-1,host-2", "warm", 1)
        _, result, device, start = call("part")
        assert (result["cores"], start) == (1, "cold")

        def held():
            return {each["function"]: (each["state"], each["device_bytes"]) for each in status(server)["sandboxes"]}

        wait_until(held, lambda held: held["part"][1] > 40 * 2**20, what="a sample of the memory that it keeps")
        assert held()["both"] == ("host-warm", 0)  # 60 and 60 of 100 MiB
        now = status(server)
        resident = {each["name"]: each["resident_bytes"] for each in now["devices"]}
        assert sorted(resident[name] for name in ("host-1", "host-2")) == [0, 60 * 2**20]
        assert call("both") == (3, together, "host-1,host-2", "swap_in")  # and it has not begun anew
        calls, _, *how = call("part")
        assert (calls, *how) == (2, device, "swap_in")
    assert replay_file(tmp_path / "data").differences == []
    assert not list(ROOT.glob("*/aliquot-*/host-1,host-2"))


def compute_s(server):
    """Return the processor time of each function so far."""
    wait_until(lambda: len(server.operate("GET", "status")["usage"]), lambda count: count == 2, what="usage of both")
    return {used["function"]: used["compute_s"] for used in server.operate("GET", "status")["usage"]}


def status(server):
    return httpx.get(f"{server.url}/operator/v1/status", headers={"authorization": f"Bearer {server.operator}"}).json()


def test_what_no_device_could_ever_hold_is_refused_when_it_is_deployed(tmp_path):
    with (
        LiveServer(tmp_path / "data", "--devices", "host:2", "--device-memory", "100MiB") as server,
        server.client() as client,
    ):

        def refused(**annotations):
            body = {"exec": {"kind": "python:3.11", "code": WHERE}, **asks(**annotations)}
            answer = client.put("actions/refused", json=body)
            assert answer.status_code == 400
            return answer.json()["error"]

        largest = f"the largest that would fit is a share of {{}} with {100 * 2**20} bytes"
        assert refused(share=3).endswith(largest.format(2) + " on each device")
        assert refused(share=1, memory="101MiB").endswith(largest.format(1))
        assert refused(share=2, memory="101MiB").endswith(largest.format(2) + " on each device")
        beyond = {"share": 0.5, "memory": "50MiB", "memory-limit": "101MiB"}
        assert "host-1, host-2: needs 105906176 bytes of 104857600" in refused(**beyond)
        assert "it takes 0, or 0.01 to 1 of a GPU in steps of 0.005" in refused(share=1.5)
        assert client.get("actions/refused").status_code == 404


@enforced
@pytest.mark.parametrize("sharing", ["hard", "elastic_guarded"])
def test_two_functions_share_a_device_as_their_annotations_say(tmp_path, sharing):
    with LiveServer(tmp_path / "data", "--devices", "host:1", "--sharing", sharing) as server:
        server.deploy("less", WORK, **asks(share=0.25))
        server.deploy("more", WORK, **asks(share=0.75))
        with server.client() as client:
            ids = [
                client.post(f"actions/{name}", json={"seconds": 60}).json()["activationId"] for name in ("less", "more")
            ]
            wait_until_busy(server, "less", "more")
            before = compute_s(server)
            after = wait_until(
                lambda: compute_s(server),
                lambda now: sum(now.values()) - sum(before.values()) >= 1.5,
                what="more processor time of both",
            )
            for activation in ids:
                client.delete(f"activations/{activation}").raise_for_status()
        spent = {name: after[name] - before[name] for name in after}
        assert spent["less"] / sum(spent.values()) == pytest.approx(0.25, abs=0.05)
    assert replay_file(tmp_path / "data").differences == []
