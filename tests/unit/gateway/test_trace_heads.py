"""The header `traceparent` on the short ways: each call gets its own trace, and heads stay remembered."""

import random

import pytest
from gateway_client import ACTIONS, on_a_loop
from gateway_wire import served
from hypothesis import given
from hypothesis import strategies as st

from aliquot.live.gateway.invocation.heads import TRACE_LINE_BYTES, without_trace
from aliquot.live.invocations.trace_context import TraceContext, pack_trace, read_trace, unpack_trace

BLOCKING = f"{ACTIONS}/echo?blocking=true&result=true"
BODY = b'{"n":1}'
TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
pytestmark = pytest.mark.usefixtures("_with_and_without_a_gateway_process")


def counting(parsed):
    def of(bound):
        class Counting(bound):
            def on_headers_complete(self):
                parsed.append(self.url)
                super().on_headers_complete()

        return Counting

    return of


async def call(wire, body=BODY, **headers):
    await wire.send(wire.head("POST", BLOCKING, Content_Length=len(body), **headers) + body)
    return await wire.answer()


def traceparent(number, flags="01"):
    return f"00-{TRACE}-{number:016x}-{flags}"


@on_a_loop
async def test_heads_that_differ_in_their_trace_are_parsed_once_and_each_call_has_its_own():
    parsed = []
    async with served(counting(parsed)) as (g, connect):
        wire = await connect()
        assert (await call(wire, traceparent=traceparent(1)))[0] == 200
        for number in (2, 3):
            assert (await call(wire, traceparent=traceparent(number)))[2] == BODY
        assert (await call(wire))[0] == 200
        assert (await call(wire, traceparent=traceparent(4, "00")))[0] == 200
        found = [made.trace for made in g.platform.calls]
        assert found[:3] == [TraceContext(TRACE, f"{number:016x}", sampled=True) for number in (1, 2, 3)]
        assert found[3:] == [None, TraceContext(TRACE, f"{4:016x}", sampled=False)]
        assert len(parsed) == 1


@on_a_loop
async def test_a_known_head_with_a_trace_may_come_before_its_body():
    async with served() as (g, connect):
        wire = await connect()
        assert (await call(wire))[0] == 200
        head = wire.head("POST", BLOCKING, Content_Length=len(BODY), traceparent=traceparent(7))
        for cut in (len(head), len(head) - 9, len(head) + 3):
            await wire.send((head + BODY)[:cut])
            await wire.send((head + BODY)[cut:])
            assert (await wire.answer())[2] == BODY
        assert {made.trace for made in g.platform.calls[1:]} == {TraceContext(TRACE, f"{7:016x}", sampled=True)}


@on_a_loop
async def test_the_state_of_a_trace_is_read_with_every_call():
    async with served() as (g, connect):
        wire = await connect()
        for number in range(3):
            await call(wire, traceparent=traceparent(number + 1), tracestate=f"a={number}")
        await call(wire, traceparent=traceparent(9))
        assert [made.trace.state for made in g.platform.calls] == ["a=0", "a=1", "a=2", ""]


@pytest.mark.parametrize(
    "value", ["", "00", f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01", f"ff-{TRACE}-{SPAN}-01",
              f"00-{TRACE.upper()}-{SPAN}-01", f"00-{TRACE}-{SPAN}-01-more", f"00-{TRACE}-{SPAN}-1"],
)  # fmt: skip
@on_a_loop
async def test_a_header_that_cannot_be_read_is_ignored(value):
    async with served() as (g, connect):
        wire = await connect()
        for _ in range(3):
            assert (await call(wire, traceparent=value))[0] == 200
        assert (await call(wire, traceparent=traceparent(5)))[0] == 200
        assert [made.trace and made.trace.parent for made in g.platform.calls] == [None] * 3 + [f"{5:016x}"]


@on_a_loop
async def test_a_header_in_other_letters_or_given_twice_never_makes_another_calls_trace():
    async with served() as (g, connect):
        wire = await connect()
        for number in (1, 2, 2, 3):
            await call(wire, Traceparent=traceparent(number))
        assert [made.trace.parent for made in g.platform.calls] == [f"{number:016x}" for number in (1, 2, 2, 3)]
        twice = wire.head("POST", BLOCKING, Content_Length=len(BODY), traceparent=traceparent(4))
        twice = twice.replace(b"\r\n\r\n", f"\r\ntraceparent: {traceparent(5)}\r\n\r\n".encode())
        for _ in range(2):
            await wire.send(twice + BODY)
            assert (await wire.answer())[0] == 200
        await call(wire, traceparent=traceparent(6))
        assert g.platform.calls[-1].trace.parent == f"{6:016x}"


@given(st.text("0123456789abcdef", min_size=32, max_size=32), st.text("0123456789abcdef", min_size=16, max_size=16),
       st.booleans(), st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=40))  # fmt: skip
def test_what_is_written_is_read_again(trace_id, parent, sampled, state):
    made = TraceContext(trace_id, parent, sampled, state)
    found = read_trace(made.header.encode(), state.encode())
    if not int(trace_id, 16) or not int(parent, 16):
        assert found is None
    else:
        assert found == made == unpack_trace(pack_trace(made))


def test_only_the_line_of_the_header_is_cut_out_of_a_head():
    chance = random.Random(1)
    lines = [b"POST /a HTTP/1.1", b"host: x", b"traceparent: " + traceparent(1).encode(), b"accept: traceparent: y"]
    for _ in range(20):
        chance.shuffle(lines[1:])
        head = b"\r\n".join([*lines, b"", b""])
        cut = without_trace(head)
        assert len(cut) == len(head) - TRACE_LINE_BYTES
        assert cut == b"\r\n".join([line for line in lines if not line.startswith(b"traceparent")] + [b"", b""])
    assert without_trace(b"\r\n".join([*lines[:2], b"traceparent: 1", b"", b""])).count(b"traceparent") == 1
