"""Twice as many calls as a real server can run, each with a deadline: promises are kept, and refusals come at once."""

from collections.abc import Callable, Sequence
from random import Random

import msgspec
from msgspec import Struct

from aliquot.sim.plots import PlotPanel
from aliquot.sim.statistics import quantile
from aliquot.testing.client import NamespaceClient, from_pairs
from aliquot_bench.environments import MeasurementError
from aliquot_bench.result import MEASURED, Goal, ResultTable, at_least, at_most
from aliquot_bench.slo.live import call_message, deploy_network, serving_server
from aliquot_bench.slo.open_loop import TimedReply, TimedRequest, get, send_all, throughput
from aliquot_bench.slo.part import SEED, SloSizes

LOAD = 2.0  # of what the machine can run
HEALTH_S = 0.05  # between two requests of /health
CALLERS = 16  # of the closed loop that measures the capacity
CAPACITY_S = 3.0
DEADLINES_MS = {"small": 100, "large": 400}
MAX_REFUSAL_MS, HEALTH_FACTOR = 5.0, 2.0
OK, REFUSED = 200, 429


class OverloadOutcome(Struct, frozen=True):
    """The answers of an open loop, and those of /health beside it."""

    capacity: float  # calls per second of a closed loop
    calls: int
    promised: int
    kept: int
    unpromised: int  # calls that ran without a promise, to learn from them
    blames: dict[str, int]
    refused_s: list[float]
    health_s: list[float]
    ended_s: list[float]  # seen by the client, of promised calls


class OverloadPart:
    """Measure promises and refusals under overload."""

    name = "live overload"
    steps = 2

    def __init__(self, sizes: SloSizes) -> None:
        self._seconds = sizes.live_s
        self._outcome: OverloadOutcome

    def run(self, on_step: Callable[[str], None]) -> None:
        on_step("live overload: the capacity of the machine")
        with serving_server() as (server, client):
            deploy_network(client, "small", 1024, 80)
            deploy_network(client, "large", 1024, 320, gpu_share=0.5)
            mixed = [call_message(client, name) for name in DEADLINES_MS]
            closed_s = min(CAPACITY_S, self._seconds)
            throughput(server.url, mixed, CALLERS, closed_s)  # until sandboxes are warm
            capacity = throughput(server.url, mixed, CALLERS, closed_s)
            on_step(f"live overload: {LOAD:g} times {capacity:.0f} calls/s for {self._seconds:g} s")
            requests = _requests(client, LOAD * capacity, self._seconds)
            self._outcome = _counted(requests, send_all(server.url, requests), capacity)

    def goals(self) -> Sequence[Goal]:
        outcome = self._outcome
        kept = 100 * outcome.kept / outcome.promised if outcome.promised else None
        refusal_ms = _ms(outcome.refused_s, 99)
        bound_ms = max(MAX_REFUSAL_MS, HEALTH_FACTOR * (_ms(outcome.health_s, 99) or 0.0))
        return [
            at_least("live, twice the capacity: promises kept", kept, 99, "%"),
            at_most("live, twice the capacity: time to a refusal, p99", refusal_ms, bound_ms, "ms"),
        ]

    def tables(self) -> Sequence[ResultTable]:
        outcome = self._outcome
        rows: list[list[str | float | None]] = [
            ["capacity, calls/s", outcome.capacity],
            ["calls", outcome.calls],
            ["promised", outcome.promised],
            ["kept", outcome.kept],
            ["ran without a promise", outcome.unpromised],
            ["refused", len(outcome.refused_s)],
            *(_row(f"broken, {blame}", count) for blame, count in sorted(outcome.blames.items())),
            *([f"refusal, p{part} ms", _ms(outcome.refused_s, part)] for part in (50, 99)),
            *([f"/health, p{part} ms", _ms(outcome.health_s, part)] for part in (50, 99)),
            *([f"promised call, p{part} ms", _ms(outcome.ended_s, part)] for part in (50, 99)),
        ]
        return [ResultTable("A real server at twice its capacity, open loop", ["", "value"], rows, MEASURED)]

    def panels(self) -> Sequence[PlotPanel]:
        return []


def _requests(client: NamespaceClient, rate: float, seconds: float) -> list[TimedRequest]:
    """Return calls at random times and requests of /health at regular ones, in order."""
    random = Random(SEED)
    requests = [TimedRequest(number * HEALTH_S, get("/health")) for number in range(int(seconds / HEALTH_S))]
    at_s = 0.0
    while (at_s := at_s + random.expovariate(rate)) < seconds:
        name = random.choice(list(DEADLINES_MS))
        requests.append(TimedRequest(at_s, call_message(client, name, deadline_ms=DEADLINES_MS[name])))
    return sorted(requests, key=lambda request: request.at_s)


def _row(name: str, value: float) -> list[str | float | None]:
    return [name, value]


def _ms(seconds: Sequence[float], part: float) -> float | None:
    return 1e3 * quantile(sorted(seconds), part / 100) if seconds else None


def _counted(requests: Sequence[TimedRequest], replies: Sequence[TimedReply], capacity: float) -> OverloadOutcome:
    """Count the answers by what became of the calls."""
    outcome = OverloadOutcome(capacity, 0, 0, 0, 0, {}, [], [], [])
    promised = kept = unpromised = calls = 0
    for reply in replies:
        if requests[reply.request].message.startswith(b"GET"):
            outcome.health_s.append(reply.took_s)
            continue
        calls += 1
        if reply.status == REFUSED:
            outcome.refused_s.append(reply.took_s)
        elif reply.status == OK:
            objective = from_pairs(msgspec.json.decode(reply.body)["annotations"])["objective"]
            blame = objective.get("blame")
            if objective.get("promised"):
                promised += 1
                kept += bool(objective["met"])
                outcome.ended_s.append(reply.took_s)
                if blame:
                    outcome.blames[blame] = outcome.blames.get(blame, 0) + 1
            else:
                unpromised += 1
        else:
            raise MeasurementError(f"a call was answered with {reply.status}: {reply.body[:200]!r}")
    return msgspec.structs.replace(outcome, calls=calls, promised=promised, kept=kept, unpromised=unpromised)
