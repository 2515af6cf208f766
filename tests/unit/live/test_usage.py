"""The usage of accelerators: sampled during runs, reported to the core, written to the file, and shown."""

import asyncio
import time

import pytest
from rig import Rig, on_a_rig

from aliquot.core.model import CPU, DeviceSpec
from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.invocations.call import Call
from aliquot.live.store.records import Action, Exec, Namespace, Pair
from aliquot.live.usage import measurements
from aliquot.live.usage.reading import read_usage
from aliquot.testing.waiting import wait_on_loop

GUEST = Namespace("guest")
DEVICES = (DeviceSpec(CPU, CPU, None, 4), DeviceSpec("host-1", "host", None, 4))


def action(name, share):
    annotations = (Pair("gpu-share", share),)
    return Action("guest", name, "0.0.1", Exec("python:3.11", ""), revision="1", annotations=annotations)


run = on_a_rig(devices=DEVICES)


@run
async def test_it_sleeps_until_something_runs_on_an_accelerator_and_when_nothing_does(rig):
    assert not rig.sampler._awake
    sandbox = await rig.begin(action("work", 0.5))
    assert rig.sampler._awake
    rig.use(sandbox, 0.001)
    rig.node.finish(sandbox)
    await wait_on_loop(lambda: not rig.sampler._awake, what="the sampler to fall asleep")
    assert rig.sampler.sandboxes[sandbox].compute_s == 0.001


@run
async def test_what_runs_on_the_cpu_is_not_looked_at(rig):
    plain = Action("guest", "plain", "0.0.1", Exec("python:3.11", ""), revision="1")
    rig.service.deploy(ResolvedAction.own(plain))
    rig.service.submit(Call("c" * 32, GUEST, ResolvedAction.own(plain), b"{}", done=lambda _: None))
    await rig.turn()
    assert rig.node.starts
    assert not rig.sampler._awake
    assert not (rig.folder / "usage.ring").exists()


@run
async def test_shares_are_of_the_time_between_two_looks_and_the_core_is_told_each_second(rig):
    sandbox = await rig.begin(action("work", 0.5))
    rig.sampler._awake = False  # the test takes the samples
    now_s = time.monotonic()
    for step in range(1, 251):
        rig.use(sandbox, step * 0.004)
        rig.sampler.sample(now_s + step / 100)
    rig.sampler.process()
    assert rig.sampler.sandboxes[sandbox].share == pytest.approx(0.4, abs=0.01)
    await rig.turn()
    device = rig.service.scheduler.registry.devices["host-1"]
    assert device.measured_utilisation == pytest.approx(0.4, abs=0.01)
    (track,) = read_usage(rig.folder, None)
    assert (track.label.function, track.label.sandbox, track.label.device) == ("work", sandbox, "host-1")
    assert len(track.samples) == 251
    assert {sample.share for sample in track.samples[2:]} == {0.4}
    assert {sample.request for sample in track.samples} == {0.5}


@run
async def test_a_while_of_nothing_takes_two_samples_however_long_it_is(rig):
    sandbox = await rig.begin(action("work", 0.5))
    rig.sampler._awake = False
    now_s = time.monotonic()
    for step in range(1, 101):
        rig.use(sandbox, 0.01 if step < 51 else 0.01 + (step - 50) * 0.01)
        rig.sampler.sample(now_s + step / 100)
    rig.sampler.process()
    (track,) = read_usage(rig.folder, None)
    after_the_first = track.samples[2:]
    assert len(after_the_first) == 51
    assert after_the_first[0].share == 0
    assert {sample.share for sample in after_the_first[1:]} == {1.0}


@run
async def test_what_a_driver_counts_only_now_and_then_is_spread_over_the_time_between(rig):
    sandbox = await rig.begin(action("work", 0.5))
    rig.sampler._awake = False
    now_s = time.monotonic()
    for step in range(1, 101):
        rig.use(sandbox, step // 20 * 0.1)  # half of the device, counted five times a second
        rig.sampler.sample(now_s + step / 100)
    rig.sampler.process()
    (track,) = read_usage(rig.folder, None)
    assert [sample.share for sample in track.samples[-4:]] == pytest.approx([0.5] * 4, abs=0.001)


@run
async def test_who_borrows_and_from_whom_is_shown(rig):
    owner, borrower = await rig.begin(action("owner", 0.75)), await rig.begin(action("borrower", 0.25))
    rig.sampler._awake = False
    now_s = time.monotonic()
    for step in range(1, 201):
        rig.use(owner, step * 0.002)
        rig.use(borrower, step * 0.008, 3 * 2**20)
        rig.sampler.sample(now_s + step / 100)
    status = rig.service.status()
    (device,) = [device for device in status["devices"] if device["name"] == "host-1"]
    assert device["utilisation"] == pytest.approx(1, abs=0.02)
    assert device["borrowed"] == pytest.approx(0.55, abs=0.02)
    assert device["lent"] == pytest.approx(0.55, abs=0.02)
    shown = {one["function"]: one for one in status["sandboxes"]}
    assert shown["owner"]["share_used"] == pytest.approx(0.2, abs=0.01)
    assert (shown["owner"]["share"], shown["borrower"]["share"]) == (0.75, 0.25)
    assert shown["borrower"]["device_bytes"] == 3 * 2**20
    used = {one["function"]: one for one in status["usage"]}
    assert used["borrower"]["compute_s"] == pytest.approx(1.6)


@run
async def test_a_functions_seconds_stay_when_its_sandbox_goes_and_its_memory_does_not(rig):
    sandbox = await rig.begin(action("work", 0.5))
    rig.sampler._awake = False
    rig.use(sandbox, 0.5)
    rig.sampler.sample(time.monotonic() + 0.01)
    rig.node.used_so_far.clear()
    rig.node.lose(sandbox)
    await rig.turn()
    (used,) = rig.service.status()["usage"]
    assert (used["compute_s"], used["device_bytes"], used["share"]) == (0.5, 0, 0)
    assert rig.sampler.sandboxes == {}


def test_functions_without_end_do_not_fill_the_metrics(monkeypatch, tmp_path):
    monkeypatch.setattr(measurements, "MAX_FUNCTIONS", 4)  # a tenant alone has half

    async def whole():
        async with Rig.open(tmp_path, devices=DEVICES) as rig:
            for number in range(4):
                sandbox = await rig.begin(action(f"work-{number}", 0.1))
                rig.use(sandbox, 0.25)
            rig.sampler.sample(time.monotonic() + 0.01)
            return rig.service.status()["usage"]

    used = asyncio.run(whole())
    assert [(one["function"], one["compute_s"]) for one in used] == [("", 0.5), ("work-0", 0.25), ("work-1", 0.25)]
