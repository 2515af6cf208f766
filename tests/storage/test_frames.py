"""Messages between the server and the agent survive encoding, whatever texts they contain."""

import asyncio
import os

import pytest

from aliquot.storage.agent.accounts import RunAccounts
from aliquot.storage.agent.prefetches import Prefetches
from aliquot.storage.cache.futures import refused
from aliquot.storage.frames import frame, from_agent_decoder, packet, view_message_decoder
from aliquot.storage.messages import OpenView, PrefetchEnded, Reply, RunSettled, StartPrefetch
from aliquot.storage.origins.local import LocalOrigin
from aliquot.storage.records import Found
from aliquot.testing.waiting import wait_on_loop

ODD = os.fsdecode(b"rsync: caf\xe9: no such file")


@pytest.mark.parametrize(
    ("message", "read"),
    [
        (PrefetchEnded(7, 0.5, ODD), PrefetchEnded(7, 0.5, "rsync: caf\\udce9: no such file")),
        (Reply(3, {"trouble": ODD}), Reply(3, {"trouble": "rsync: caf\\udce9: no such file"})),
        (
            RunSettled("i", 0, {Found.CACHED: 1}, 0, 0, "", (ODD,)),
            RunSettled("i", 0, {Found.CACHED: 1}, 0, 0, "", ("rsync: caf\\udce9: no such file",)),
        ),
        (PrefetchEnded(7, 0.5, "café"), PrefetchEnded(7, 0.5, "café")),
    ],
)
def test_a_text_that_is_no_utf_8_is_sent_so_that_it_can_be_read(message, read):
    assert from_agent_decoder.decode(frame(message)[4:]) == read


def test_what_goes_with_a_descriptor_is_as_safe():
    assert view_message_decoder.decode(packet(OpenView(1, ("a\udce9",)))) == OpenView(1, ("a\\udce9",))


def test_what_a_program_has_said_of_an_origin_can_be_read():
    error = LocalOrigin("/srv", {}).failed("cannot be listed", RuntimeError(ODD))
    assert str(error) == "/srv: cannot be listed: rsync: caf\\udce9: no such file"


class Broken:
    """A cache that raises unexpected errors."""

    def fetch(self, key, urgency):
        if key.path == "at once":
            raise RuntimeError("at once")
        return refused(RuntimeError(""))


def test_every_prefetch_ends_once_whatever_goes_wrong():
    async def run():
        told = []
        prefetches = Prefetches(Broken(), RunAccounts(lambda *_: None), told.append)
        for number, path in enumerate(("at once", "later")):
            prefetches.begin(StartPrefetch(number, "ann", "s", "d", path, "why"))
        return await wait_on_loop(lambda: told, lambda told: len(told) == 2, what="the ends of both prefetches")

    assert [(each.fetch, each.error) for each in asyncio.run(run())] == [(0, "at once"), (1, "RuntimeError")]
