"""The gateway behind a real server on a real socket: slow, large, broken and disconnected requests."""

import asyncio
import gc
import json

import pytest
from gateway_client import ACTIONS, NS, on_a_loop
from gateway_wire import SERVED, served
from virtual_time import in_virtual_time

from aliquot.core.units import MIB
from aliquot.live.node.base import Outcome, Status
from aliquot.testing.waiting import wait_on_loop

BLOCKING = f"{ACTIONS}/echo?blocking=true&result=true"


@pytest.fixture(params=["uvicorn", "fast", "forwarded"], autouse=True)
def protocol(request, monkeypatch):
    """Run each test with ASGI, with the fast path, and with a gateway process before it."""
    monkeypatch.setitem(SERVED, "fast", request.param != "uvicorn")
    monkeypatch.setitem(SERVED, "forwarded", request.param == "forwarded")


@on_a_loop
async def test_calls_follow_one_another_on_one_connection():
    async with served() as (_, connect):
        wire = await connect()
        for number in range(3):
            body = b'{"n":%d}' % number
            await wire.send(wire.head("POST", BLOCKING, Content_Length=len(body)) + body)
            status, headers, answer = await wire.answer()
            assert (status, answer) == (200, body)
            assert headers["content-type"] == "application/json"
        await wire.send(wire.head("POST", BLOCKING) + wire.head("GET", "/health"))
        assert (await wire.answer())[2] == b"{}"
        assert (await wire.answer())[0] == 200


@in_virtual_time
async def test_a_missing_body_is_a_408():
    async with served(body_s=0.05) as (g, connect):
        for method, path in (("POST", BLOCKING), ("PUT", f"{ACTIONS}/new")):
            for begun in (b"", b'{"a"'):
                wire = await connect()
                await wire.send(wire.head(method, path, Content_Length=10) + begun)
                status, text, headers = await wire.error()
                assert (status, text) == (408, "The request's body did not arrive in time.")
                assert headers["connection"] == "close"
                assert await wire.reader.read() == b""
        assert g.platform.calls == []


@pytest.mark.parametrize("chunked", [False, True])
@in_virtual_time
async def test_a_slow_body_is_a_408(chunked):
    async with served(body_s=0.1) as (_, connect):
        wire = await connect()
        length = {"Transfer_Encoding": "chunked"} if chunked else {"Content_Length": 10**6}
        await wire.send(wire.head("POST", BLOCKING, **length))

        async def drip():
            while True:
                await wire.send(b"1\r\n \r\n" if chunked else b" ")
                await asyncio.sleep(0.01)

        dripping = asyncio.create_task(drip())
        assert (await wire.error())[0] == 408
        dripping.cancel()
        await asyncio.gather(dripping, return_exceptions=True)


@pytest.mark.parametrize("chunked", [False, True])
@in_virtual_time
async def test_a_body_with_enough_progress_may_take_long(chunked):
    async with served(body_s=0.4, body_least_bytes=2) as (_, connect):
        wire = await connect()
        length = {"Transfer_Encoding": "chunked"} if chunked else {"Content_Length": 100}
        await wire.send(wire.head("POST", BLOCKING, **length))
        for _ in range(25):  # a second in total, without a long pause
            await wire.send(b"4\r\n    \r\n" if chunked else b"    ")
            await asyncio.sleep(0.04)
        if chunked:
            await wire.send(b"0\r\n\r\n")
        assert (await wire.error())[0] == 400  # blanks are not JSON, but the body is complete


@in_virtual_time
async def test_an_incomplete_head_is_a_408(monkeypatch):
    monkeypatch.setitem(SERVED, "fast", True)  # uvicorn's own protocol waits forever
    async with served(head_s=0.1) as (g, connect):
        for line in ("GET /health", f"POST {BLOCKING}"):
            wire = await connect()
            await wire.send(f"{line} HTTP/1.1\r\n".encode())

            async def drip(wire=wire):
                while True:
                    await wire.send(b"X: y\r\n")
                    await asyncio.sleep(0.01)

            dripping = asyncio.create_task(drip())
            status, text, headers = await wire.error()
            assert (status, text) == (408, "The request's head did not arrive in time.")
            assert headers["connection"] == "close"
            dripping.cancel()
            await asyncio.gather(dripping, return_exceptions=True)
        wire = await connect()  # in pieces, but in time
        for piece in (b"GET /health HT", b"TP/1.1\r\nHo", b"st: gateway\r\n", b"\r\n"):
            await wire.send(piece)
            await asyncio.sleep(0.01)
        assert (await wire.answer())[0] == 200
        await asyncio.sleep(0.15)
        await wire.send(wire.head("GET", "/health"))  # the head was late, but the connection stays open
        assert (await wire.answer())[0] == 200
        assert g.platform.calls == []


@on_a_loop
async def test_a_body_with_a_too_large_length_is_refused_before_it_arrives():
    async with served(payload_bytes=1000) as (g, connect):
        wire = await connect()
        await wire.send(wire.head("POST", BLOCKING, Content_Length=10**12, Expect="100-continue"))
        status, text, _ = await wire.error()
        assert (status, text) == (413, f"Request larger than allowed: {10**12} > 1000 bytes.")
        assert g.platform.calls == []


@on_a_loop
async def test_a_body_without_a_length_is_refused_when_it_is_too_large():
    async with served(payload_bytes=1000) as (_, connect):
        wire = await connect()
        await wire.send(wire.head("POST", BLOCKING, Transfer_Encoding="chunked"))
        for _ in range(3):
            await wire.send(b"190\r\n" + b" " * 400 + b"\r\n")
        status, text, _ = await wire.error()
        assert status == 413
        assert text.startswith("Request larger than allowed: ")
        assert text.endswith(" > 1000 bytes.")


@on_a_loop
async def test_a_client_that_sent_too_much_can_read_the_refusal_and_continue():
    async with served(payload_bytes=1000) as (_, connect):
        wire = await connect()
        await wire.send(wire.head("POST", BLOCKING, Content_Length=3_000_000) + b" " * 3_000_000)
        assert (await wire.error())[0] == 413
        await wire.send(wire.head("POST", BLOCKING))
        assert (await wire.answer())[0] == 200


@on_a_loop
async def test_a_large_body_is_passed_on_and_returned_unchanged():
    async with served() as (_, connect):
        body = json.dumps({"x": "é" * 3_000_000}).encode()
        wire = await connect()
        await wire.send(wire.head("POST", BLOCKING, Content_Length=len(body), Content_Type="application/json"))
        await wire.send(body)
        assert (await wire.answer())[2] == body


@on_a_loop
async def test_a_body_in_pieces_is_joined():
    async with served() as (_, connect):
        wire = await connect()
        await wire.send(wire.head("POST", BLOCKING, Transfer_Encoding="chunked"))
        for piece in (b'{"a', b'":', b"1}"):
            await wire.send(b"%x\r\n%b\r\n" % (len(piece), piece))
            await asyncio.sleep(0.005)
        await wire.send(b"0\r\n\r\n")
        assert (await wire.answer())[2] == b'{"a":1}'


@on_a_loop
async def test_a_caller_that_disconnects_does_not_affect_its_run():
    async with served(concurrent_invocations=1) as (g, connect):
        g.platform.hold = True
        wire = await connect()
        await wire.send(wire.head("POST", BLOCKING))
        await g.until_called()
        wire.writer.transport.abort()
        assert (await g.say("POST", BLOCKING))[0] == 429  # it still runs
        call = g.platform.calls[0]
        g.platform.finish(call)
        assert (await g.say("GET", f"{NS}/activations/{call.id}"))[0] == 200
        assert g.app.invoke.waiting == 0
        g.platform.hold = False
        assert (await g.say("POST", BLOCKING))[0] == 200


@on_a_loop
async def test_an_incomplete_request_has_no_effect():
    async with served() as (g, connect):
        for method, path in (("POST", BLOCKING), ("PUT", f"{ACTIONS}/new")):
            wire = await connect()
            await wire.send(wire.head(method, path, Content_Length=10) + b'{"a":')
            await asyncio.sleep(0.01)
            wire.writer.transport.abort()
        await asyncio.sleep(0.01)
        assert g.platform.calls == []
        assert g.catalogue.entities.any("guest", "new") is None
        assert len(g.app._bodies._slow) == 0


@on_a_loop
async def test_requests_with_two_lengths_are_refused():
    async with served() as (g, connect):
        for more in (
            {"Content_Length": "2\r\nContent-Length: 30"},
            {"Content_Length": 4, "Transfer_Encoding": "chunked"},
        ):
            wire = await connect()
            await wire.send(wire.head("POST", BLOCKING, **more) + b"{}\r\n0\r\n\r\n")
            assert (await wire.reader.readline()).split()[1] == b"400"
        assert g.platform.calls == []


@on_a_loop
async def test_paths_are_not_decoded_before_they_are_split():
    async with served() as (_, connect):
        wire = await connect()
        for path, status in (
            (f"{ACTIONS}/../actions/echo", 400),
            (f"{ACTIONS}/%2e%2e", 400),
            (f"{ACTIONS}/ec%68o?blocking=true", 200),
            (f"{ACTIONS}/echo%00", 400),
            ("/api/v1/namespaces/_/actions/%ff", 400),
            ("/api/v1//namespaces/_/actions/echo", 404),
            (f"{ACTIONS}/a%2f..%2fecho", 400),
        ):
            await wire.send(wire.head("POST", path))
            assert ((await wire.answer())[0], path) == (status, path)


@on_a_loop
async def test_head_has_no_body():
    async with served() as (_, connect):
        wire = await connect()
        await wire.send(wire.head("HEAD", "/health"))
        head = await wire.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 ")
        await wire.send(wire.head("GET", "/health"))
        assert (await wire.reader.readline()).startswith(b"HTTP/1.1 200 ")


@on_a_loop
async def test_a_client_that_does_not_read_is_not_served_forever():
    many, body = 300, b'{"x":"%b"}' % (b"x" * 100_000)
    async with served() as (g, connect):
        wire = await connect()
        wire.reader._transport.pause_reading()
        asked = 0
        while asked == len(g.platform.calls) and asked < many:
            wire.writer.write(wire.head("POST", BLOCKING, Content_Length=len(body)) + body)
            asked += 1
            for _ in range(100):  # until it is served, which may never happen
                await asyncio.sleep(0.005)
                if len(g.platform.calls) == asked:
                    break
        assert asked < many
        wire.reader._transport.resume_reading()
        assert [(await wire.answer())[0] for _ in range(asked)] == [200] * asked


@on_a_loop
async def test_a_caller_that_does_not_read_its_response_is_disconnected(monkeypatch):
    monkeypatch.setitem(SERVED, "fast", True)  # uvicorn's own protocol waits forever
    body = b'{"x":"%b"}' % (b"x" * 20_000_000)
    async with served(answer_s=0.2) as (g, connect):
        for chunked in (False, True):  # on the fast path and through ASGI
            wire = await connect()
            wire.reader._transport.pause_reading()
            length = {"Transfer_Encoding": "chunked"} if chunked else {"Content_Length": len(body)}
            await wire.send(wire.head("POST", BLOCKING, **length))
            await wire.send(b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body) if chunked else body)
            asked = 1 + chunked
            await g.until_called(asked)
            await asyncio.sleep(1)
            wire.reader._transport.resume_reading()
            with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
                await wire.answer()


@on_a_loop
async def test_a_slow_reader_gets_a_large_response_and_then_the_next(monkeypatch):
    monkeypatch.setitem(SERVED, "fast", True)
    body = b'{"x":"%b"}' % (b"x" * 8_000_000)
    async with served(answer_s=30) as (_, connect):
        wire = await connect()
        head = wire.head("POST", BLOCKING, Content_Length=len(body))
        await wire.send(head + body + wire.head("POST", BLOCKING) + wire.head("GET", "/health"))
        transport = wire.reader._transport
        for _ in range(8):
            transport.pause_reading()
            await asyncio.sleep(0.05)
            transport.resume_reading()
            await asyncio.sleep(0.002)
        assert (await wire.answer())[2] == body
        assert (await wire.answer())[2] == b"{}"
        assert (await wire.answer())[0] == 200


@in_virtual_time
async def test_a_response_may_take_longer_than_the_idle_timeout(monkeypatch):
    monkeypatch.setitem(SERVED, "keep_alive_s", 1)
    async with served() as (g, connect):
        g.platform.hold = True
        wires = [await connect(), await connect()]
        for wire, accept in zip(wires, ("application/json", "text/event-stream"), strict=True):
            await wire.send(wire.head("POST", BLOCKING, Accept=accept))
        await g.until_called(2)
        await asyncio.sleep(2.2)
        for call in g.platform.calls:
            g.platform.finish(call)
        assert (await wires[0].answer())[2] == b"{}"
        assert b"event: result" in await wires[1].reader.readuntil(b"0\r\n\r\n")


@pytest.mark.parametrize("chunked", [False, True])
@on_a_loop
async def test_the_memory_of_all_large_bodies_is_limited(chunked):
    body = b'{"x":"%b"}' % (b"x" * 3_000_000)
    room = 2 * (4_000_000 if chunked else len(body))  # a namespace alone gets half
    async with served(payload_bytes=4_000_000, bodies_bytes=room) as (g, connect):
        payloads = g.app.payloads.bytes

        def request(wire):
            length = {"Transfer_Encoding": "chunked"} if chunked else {"Content_Length": len(body)}
            chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(body), body)
            return wire.head("POST", BLOCKING, **length), chunks if chunked else body

        g.platform.answer = lambda _: Outcome(Status.SUCCESS, b"{}", 0.001)  # an echo would stay in its record
        first, second, third = await connect(), await connect(), await connect()
        head, sent = request(first)
        await first.send(head + sent[:2_000_000])
        await wait_on_loop(lambda: payloads.used > 2**20, what="memory for the first body")
        head, sent_second = request(second)
        await second.send(head + sent_second[:2_000_000])
        status, text, headers = await second.error()
        assert status == 429
        assert "payloads: the namespace holds" in text
        assert headers["connection"] == "close"
        await first.send(sent[2_000_000:])
        assert (await first.answer())[2] == b"{}"
        g.platform.calls.clear()
        gc.collect()  # the test's own exchanges
        await wait_on_loop(lambda: payloads.used == 0, what="the first body's memory to be freed")
        head, sent = request(third)
        await third.send(head + sent)
        assert (await third.answer())[2] == b"{}"


@on_a_loop
async def test_the_memory_of_a_body_that_never_ends_is_free_when_the_client_has_gone():
    """Connections are reference cycles, so the memory must not wait for the garbage collector."""
    async with served() as (g, connect):
        payloads = g.app.payloads
        gc.disable()
        try:
            for _ in range(5):
                wire = await connect()
                await wire.send(wire.head("POST", f"{ACTIONS}/echo?blocking=true", Content_Length=3 * MIB))
                await wire.send(b" " * 2 * MIB)
                await wait_on_loop(lambda: payloads.bytes.used, what="the body's memory")
                wire.close()
                await wait_on_loop(
                    lambda: (payloads.bytes.used, payloads.descriptors.used),
                    lambda used: used == (0, 0),
                    what="the memory of a body whose client has gone",
                )
        finally:
            gc.enable()
