"""Streams of events from a gateway with a fake platform."""

import asyncio

from event_reader import STREAM, events_of
from gateway_client import ACTIONS, gateway, on_a_loop

from aliquot.live.node.base import Outcome, Status

BLOCKING = {"blocking": "true"}


@on_a_loop
async def test_a_quiet_stream_sends_keep_alive_comments():
    async with gateway(stream_keep_alive_s=0.01) as g:
        g.platform.hold = True
        asked = asyncio.create_task(g.post(f"{ACTIONS}/echo", params=BLOCKING, json={}, headers=STREAM))
        await g.until_called()
        for _ in range(5):  # each of these periods has at least one keep-alive comment
            await asyncio.sleep(0.02)
        g.platform.finish(g.platform.calls[0])
        kinds = [event.kind for event in events_of(await asked)]
        assert kinds[0] == "accepted"
        assert kinds.count(":") > 2
        assert kinds[-1] == "result"


@on_a_loop
async def test_lines_within_a_result_are_lines_of_its_event():
    async with gateway() as g:
        g.platform.answer = lambda _: Outcome(Status.SUCCESS, b'{"a":\n[1,\r\n2]}', 0.001)
        answer = await g.post(f"{ACTIONS}/echo", params={**BLOCKING, "result": "true"}, headers=STREAM)
        assert answer.text.endswith('event: result\nid: end\ndata: {"a":\ndata: [1,\ndata: 2]}\n\n')
        assert list(events_of(answer))[-1].data == {"a": [1, 2]}


@on_a_loop
async def test_a_call_that_is_refused_later_ends_the_stream_with_an_error():
    async with gateway() as g:
        g.platform.hold = True
        asked = asyncio.create_task(g.post(f"{ACTIONS}/echo", params=BLOCKING, json={}, headers=STREAM))
        await g.until_called()
        call = g.platform.calls[0]
        call.reason = "no device is left"
        call.done(call)
        answer = await asked
        error = list(events_of(answer))[-1]
        assert (error.kind, error.data) == (
            "error",
            {"error": "no device is left", "code": answer.headers["x-request-id"]},
        )
