"""Measure the cost of an invocation in the gateway's own code: `python tests/support/gateway_cost.py`.

The platform responds at once, and no socket is involved. Each figure is the median of several rounds, with minimum and
maximum. A busy machine shows in their difference.
"""

import asyncio
import base64
import statistics
import time

import msgspec
import uvloop

from aliquot.core.commands import Start
from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.catalogue.resolving import ResolvedAction
from aliquot.live.gateway.app import Gateway
from aliquot.live.gateway.entities import wire
from aliquot.live.gateway.entities.actions import build_action
from aliquot.live.gateway.invocation.exchange import Exchange
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.invocations.activations import ActivationRecorder
from aliquot.live.invocations.call import Call
from aliquot.live.invocations.parameters import read_object
from aliquot.live.node.base import Outcome, Status
from aliquot.live.store.operator_token import OperatorToken
from aliquot.live.store.records import FullName
from aliquot.testing.platform import FakePlatform
from aliquot.testing.store import MemoryStore

ROUNDS, CALLS = 15, 20_000
PATH, QUERY, BODY = b"/api/v1/namespaces/_/actions/echo", b"blocking=true&result=true", b'{"a":1}'
OUTCOME = Outcome(Status.SUCCESS, BODY, 0.001)


class Instant(FakePlatform):
    """A platform whose calls end before `submit` returns."""

    def submit(self, call: Call) -> None:
        call.run.start, call.outcome, call.activation = Start.WARM, OUTCOME, self.record
        call.done(call)


def show(label: str, figures: list[float], unit: str = "µs") -> None:
    low, middle, high = min(figures), statistics.median(figures), max(figures)
    print(f"{label:46} {middle:6.1f} {unit}   ({low:.1f} to {high:.1f})")  # noqa: T201 - a script


def timed(work, times: int = CALLS) -> list[float]:
    figures = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        for _ in range(times):
            work()
        figures.append((time.perf_counter() - begun) / times * 1e6)
    return figures


async def timed_asgi(app, scope) -> list[float]:
    async def receive():
        return {"type": "http.request", "body": BODY, "more_body": False}

    async def send(_):
        pass

    figures = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        for _ in range(CALLS):
            await app(scope, receive, send)
        figures.append((time.perf_counter() - begun) / CALLS * 1e6)
    return figures


async def bare_echo(_, receive, send):
    body = (await receive())["body"]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


async def main() -> None:
    store, settings = MemoryStore(), GatewaySettings()
    platform = Instant(store)
    catalogue = Catalogue(store, platform)
    key = await catalogue.create_namespace("guest")
    put = wire.ActionPut(exec=wire.ExecPut("python:3", "x"))
    async with catalogue.writing("guest"):
        action = await catalogue.put(build_action(FullName("guest", "echo"), put, None, catalogue.entities, settings))
    sample = Call("0" * 32, catalogue.namespace("guest"), ResolvedAction.own(action), BODY)
    platform.record = ActivationRecorder("policy").record(sample, OUTCOME, start_ms=1, duration_ms=1)
    gateway = Gateway(platform, catalogue, store, settings, OperatorToken("token"))
    authorization = b"Basic " + base64.b64encode(key.encode())

    def call(query=QUERY):
        transaction = gateway.request_ids.of(None)
        exchange = Exchange(PATH, query, authorization, b"application/json", transaction, BODY, lambda *_: None)
        gateway.invoke.handle(exchange)

    def call_after_a_change():
        catalogue.generation += 1
        call()

    show("handle, bare result", timed(call))
    show("handle, whole record", timed(lambda: call(b"blocking=true")))
    show("handle, first call after the catalogue changed", timed(call_after_a_change))
    headers = [(b"host", b"gateway"), (b"authorization", authorization), (b"content-type", b"application/json")]
    headers += [(b"content-length", b"%d" % len(BODY)), (b"user-agent", b"wrk")]
    scope = {"type": "http", "method": "POST", "raw_path": PATH, "query_string": QUERY, "headers": headers}
    show("the same through ASGI", await timed_asgi(gateway, scope))
    show("a bare ASGI echo", await timed_asgi(bare_echo, scope))
    large = msgspec.json.encode({"a": ["x" * 12] * 2_000_000})
    figures = [figure / 1000 for figure in timed(lambda: read_object(large), 1)]
    show(f"a look over a body of {len(large) / 1e6:.0f} MB", figures, "ms")
    gateway.close()


if __name__ == "__main__":
    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    asyncio.run(main())
