"""Sandboxes that the live platform starts before a call comes, with a node that does as it is told."""

import asyncio

from rig import on_a_rig
from structlog.testing import capture_logs
from test_service import ECHO, summary

from aliquot.config import PolicySettings
from aliquot.testing.waiting import wait_on_loop

# Frees memory at once after a call, and starts a sandbox after nine tenths of the shortest idle time.
_SOON = {"bin_s": "0.1", "bins": "600", "head": "0"}
run = on_a_rig(
    deployed=(ECHO,), settings=PolicySettings("fair_resident", "hybrid_histogram", params={"hybrid_histogram": _SOON})
)


async def called_twice(rig):
    """Let a function have one idle time, and return the number of the sandbox that is then started ahead."""
    for pause_s in (0.25, 0):
        rig.service.submit(rig.call(ECHO))
        await rig.finish()
        await asyncio.sleep(pause_s)
    return await wait_on_loop(lambda: max(rig.node.started), lambda last: last > 1, what="a start ahead")


@run
async def test_a_call_finds_the_sandbox_that_was_started_ahead_and_its_record_says_what_it_saved(rig):
    sandbox = await called_twice(rig)
    launch = rig.node.started[sandbox]
    assert not [name for name in launch.env if name in {"__OW_ACTIVATION_ID", "__OW_DEADLINE", "__OW_TRANSACTION_ID"}]
    rig.make_ready()
    await rig.turn()
    call = rig.call(ECHO)
    rig.service.submit(call)
    await rig.finish()
    await rig.until_ended(call)
    told = summary(call)
    assert told["start"] == "warm"
    assert told["hold"] == {"hiddenTime": 10}
    assert "initTime" not in told


@run
async def test_a_start_ahead_that_fails_is_told_once_and_harms_no_call(rig):
    with capture_logs() as lines:
        lost = await called_twice(rig)
        rig.node.lose(lost)
        del rig.node.started[lost]  # so that the rig does not make it ready
        await rig.turn()
        call = rig.call(ECHO)
        rig.service.submit(call)
        await rig.finish()
        await rig.until_ended(call)
    assert summary(call)["start"] == "cold"
    told = [line for line in lines if line["event"] == "a start ahead of calls failed"]
    assert [line["function"] for line in told] == ["echo"]
