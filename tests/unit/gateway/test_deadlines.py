"""Waits of equal length that share one timer."""

import asyncio
import os
import time

import uvloop

from aliquot.live.gateway.http.deadlines import STANDSTILL_S, Deadlines
from aliquot.testing.waiting import wait_on_loop


def test_what_arrives_while_the_server_stands_still_is_read_before_a_wait_expires():
    expired = []

    async def scene():
        loop = asyncio.get_running_loop()
        deadlines = Deadlines(0.1, expired.append)
        data, data_end = os.pipe()
        block, block_end = os.pipe()

        def stand_still():
            os.read(block, 1)
            os.write(data_end, b"x")  # not before this turn of the loop, so that it is unread when the timers run
            time.sleep(2 * STANDSTILL_S)

        def arrived():
            os.read(data, 1)
            deadlines.discard("in time")

        loop.add_reader(block, stand_still)
        loop.add_reader(data, arrived)
        deadlines.add("in time")
        deadlines.add("late")
        os.write(block_end, b"x")
        await wait_on_loop(lambda: expired, what="a wait to expire")
        for fd in (data, block):
            loop.remove_reader(fd)
        for fd in (data, data_end, block, block_end):
            os.close(fd)

    uvloop.run(scene())
    assert expired == ["late"]
