"""Large replies of real sandboxes wait for their tenant's part of the memory, and for nothing else."""

import gc
from pathlib import Path

from sandboxes import play, result

from aliquot.descriptors import BODY_DESCRIPTORS
from aliquot.runtime.frames import REPLY
from aliquot.testing.waiting import wait_on_loop

RESULT_BYTES = 4 * 2**20
TOTAL_BYTES = 5 * RESULT_BYTES  # a tenant alone gets half
UNFINISHED = (
    f"import os, time\ndef main(args):\n    os.write(3, {REPLY.pack(0, False, 0, RESULT_BYTES, 0)!r})\n"
    "    os.write(3, b'x' * 100_000)\n    time.sleep(1000)\n"
)
LARGE = "def main(args):\n    return {'text': 'x' * 3_000_000}\n"


def open_bodies():
    names = [str(fd.readlink()) for fd in Path("/proc/self/fd").iterdir() if fd.is_symlink() and fd.exists()]
    return sum("aliquot-body" in name for name in names)


async def begun(rig, tenant, count):
    """Start replies that are never completed, and return their sandboxes."""
    sandboxes = [await rig.started(UNFINISHED, tenant=tenant) for _ in range(count)]
    for sandbox in sandboxes:
        rig.request(sandbox)
    memory = rig.node._reply_memory
    await wait_on_loop(lambda: memory.is_awaited(tenant), what="replies that wait for memory")
    return sandboxes


def test_unfinished_replies_have_one_bound_and_delay_no_other_tenants_reply(tmp_path):
    async def scene(rig):
        memory = rig.node._reply_memory
        sandboxes = await begun(rig, "greedy", 6)
        assert 0 < memory.used <= TOTAL_BYTES // 2
        assert open_bodies() == BODY_DESCRIPTORS * (memory.used // RESULT_BYTES)
        neighbour = await rig.started(LARGE, tenant="neighbour")
        for _ in range(3):
            assert len(result(await rig.run(neighbour))["text"]) == 3_000_000
        for sandbox in sandboxes:
            rig.node.stop_sandbox(sandbox)
        gc.collect()
        assert (memory.used, open_bodies()) == (0, 0)

    play(tmp_path, scene, result_bytes=RESULT_BYTES, replies_bytes=TOTAL_BYTES)


def test_a_reply_that_waits_for_memory_comes_when_there_is_some(tmp_path):
    async def scene(rig):
        sandboxes = await begun(rig, "greedy", 3)
        honest = await rig.started(LARGE, tenant="greedy")
        rig.request(honest)
        for sandbox in sandboxes:
            rig.node.stop_sandbox(sandbox)
        what, of, outcome = await rig.next()
        assert (what, of) == ("finished", honest)
        assert len(result(outcome)["text"]) == 3_000_000

    play(tmp_path, scene, result_bytes=RESULT_BYTES, replies_bytes=TOTAL_BYTES)


def test_a_reply_that_finds_no_memory_within_its_time_says_so(tmp_path):
    async def scene(rig):
        await begun(rig, "greedy", 3)
        honest = await rig.started(LARGE, tenant="greedy")
        outcome = await rig.run_and_lose(honest, timeout_ms=1500)
        assert outcome.timed_out
        assert "Its result could not be received: large replies: the namespace holds" in result(outcome)["error"]

    play(tmp_path, scene, result_bytes=RESULT_BYTES, replies_bytes=TOTAL_BYTES)


def test_a_sandbox_that_ends_while_its_reply_waits_is_lost(tmp_path):
    async def scene(rig):
        await begun(rig, "greedy", 3)
        ends = await rig.started(UNFINISHED.replace("time.sleep(1000)", "os._exit(1)"), tenant="greedy")
        assert "error" in result(await rig.run_and_lose(ends))

    play(tmp_path, scene, result_bytes=RESULT_BYTES, replies_bytes=TOTAL_BYTES)
