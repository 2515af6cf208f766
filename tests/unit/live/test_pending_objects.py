"""Objects that are written behind the calls that made them."""

import asyncio
import fcntl
import os

from aliquot.live.node.output_memory import OutputMemory
from aliquot.live.objects.pending import PendingObjects


def written(memory):
    """Do what an executor does when it has written a memory."""
    fd, done = memory.give()
    os.pwrite(fd, b"abcd", 0)
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_WRITE)
    os.write(done, b"1")
    os.close(fd)
    os.close(done)


def test_an_object_is_stored_when_it_is_written_and_its_version_may_still_be_on_the_device():
    async def run():
        pending, memory, wanted = PendingObjects(), OutputMemory(4, "7"), []

        async def store(is_wanted):
            wanted.append(is_wanted())
            return "digest"

        pending.add("guest", "k", memory, store)
        assert pending.find("guest", "k").memory is memory
        written(memory)
        await pending.settled("guest", "k")
        assert wanted == [True]
        assert pending.find("guest", "k") is None
        assert (pending.token("guest", "k", "digest"), pending.token("guest", "k", "other")) == ("7", "")

    asyncio.run(run())


def test_an_object_whose_executor_ended_is_lost_and_says_why_until_it_is_written_again():
    async def run():
        pending, memory = PendingObjects(), OutputMemory(4, "7")

        async def store(_):
            raise AssertionError("nothing was written")

        pending.add("guest", "k", memory, store)
        for fd in memory.give():
            os.close(fd)
        await pending.settled("guest", "k")
        assert "its executor ended before it was written" in pending.why_lost("guest", "k")
        pending.replaced("guest", "k")
        assert pending.why_lost("guest", "k") is None

    asyncio.run(run())


def test_an_object_that_is_replaced_meanwhile_is_not_named():
    async def run():
        pending, memory, stored = PendingObjects(), OutputMemory(4, "7"), asyncio.Event()

        async def store(is_wanted):
            assert not is_wanted()
            stored.set()
            return "digest"

        pending.add("guest", "k", memory, store)
        pending.replaced("guest", "k")
        written(memory)
        async with asyncio.timeout(30):
            await stored.wait()
        assert pending.find("guest", "k") is None

    asyncio.run(run())
