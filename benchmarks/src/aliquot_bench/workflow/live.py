"""Executions on a server: against plain calls over one connection, against each other, and asleep at a start."""

import http.client
import json
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from aliquot.testing.client import check
from aliquot_bench.environments import MeasurementError, scratch
from aliquot_bench.latency.platform import NO_OP, REQUEST_TIMEOUT_S, LatencyPlatform, up
from aliquot_bench.workflow.engine import Definition, tasks

TASKS = 10
CALLERS = 64
SLEEP_S = 86_400
EVIL = "a" * 40 + "!"
CALL = "/api/v1/namespaces/_/actions/{}?blocking=true&result=true"

PLAIN, SEQUENCE, EXPRESS, STANDARD, CHAINED = "noop", "sequence", "express", "standard", "chained"
EXPRESS_ONE, STANDARD_ONE = "express-one", "standard-one"


class WorkflowServer:
    """A running server with the functions and workflows that are measured."""

    def __init__(self, platform: LatencyPlatform) -> None:
        self.platform = platform
        self._address = urlsplit(platform.url)
        platform.deploy(PLAIN, NO_OP)
        for number in range(TASKS):
            platform.deploy(f"member{number}", NO_OP, {"group": "members"})
        components = [f"/_/{PLAIN}"] * TASKS
        body = {"exec": {"kind": "sequence", "components": components}}
        check(platform.client.put(f"actions/{SEQUENCE}", json=body))
        self.deploy(EXPRESS, tasks(TASKS), durable=False)
        self.deploy(EXPRESS_ONE, tasks(1), durable=False)
        self.deploy(STANDARD, tasks(TASKS))
        self.deploy(STANDARD_ONE, tasks(1))
        chained = tasks(TASKS)
        for number, state in enumerate(chained["States"].values()):
            state["Resource"] = f"member{number}"
        self.deploy(CHAINED, chained, durable=False)

    def deploy(self, name: str, definition: Definition, *, durable: bool = True) -> None:
        annotations = [] if durable else [{"key": "durable", "value": False}]
        self.platform.client.deploy(name, json.dumps(definition), kind="workflow", annotations=annotations)

    @contextmanager
    def caller(self) -> Iterator[Callable[[str], None]]:
        """Yield a function that calls an action over one connection, and fails if the call does."""
        connection = http.client.HTTPConnection(self._address.netloc, timeout=REQUEST_TIMEOUT_S)
        headers = {"Authorization": self.platform.client.authorization, "Content-Type": "application/json"}

        def call(name: str) -> None:
            connection.request("POST", CALL.format(name), b"{}", headers)
            answer = connection.getresponse()
            body = answer.read()
            if answer.status != http.HTTPStatus.OK:
                raise MeasurementError(f"{name} answered {answer.status}: {body[:200]!r}")

        try:
            yield call
        finally:
            connection.close()


def measure_calls(server: WorkflowServer, turns: int) -> dict[str, list[float]]:
    """Return the seconds of ten calls, and of workflows of ten tasks, in turn over one connection."""
    found: dict[str, list[float]] = {}
    names = (PLAIN, SEQUENCE, EXPRESS, EXPRESS_ONE, STANDARD, STANDARD_ONE, CHAINED)
    with server.caller() as call:
        for turn in range(turns + 2):
            for name in names:
                began = time.perf_counter()
                for _ in range(TASKS if name == PLAIN else 1):
                    call(name)
                if turn > 1:  # the first two warm everything up
                    found.setdefault(name, []).append(time.perf_counter() - began)
    return found


def per_second(server: WorkflowServer, name: str, count: int) -> float:
    """Return how many executions of a workflow end in a second, with many callers at once."""

    def call_some(number: int) -> None:
        with server.caller() as call:
            for _ in range(number):
                call(name)

    with ThreadPoolExecutor(CALLERS) as pool:
        list(pool.map(call_some, [1] * CALLERS))  # warms up
        began = time.perf_counter()
        list(pool.map(call_some, [max(1, count // CALLERS)] * CALLERS))
        return max(1, count // CALLERS) * CALLERS / (time.perf_counter() - began)


def percentile(values: Sequence[float], part: float) -> float:
    return sorted(values)[min(len(values) - 1, int(part * len(values)))]


def beside_evil_p99_s(server: WorkflowServer, calls: int) -> tuple[float, float]:
    """Return the p99 of warm calls without and with executions whose expressions never end."""
    evil = {
        "QueryLanguage": "JSONata",
        "StartAt": "A",
        "States": {"A": {"Type": "Pass", "Output": f"{{% $match('{EVIL}', /(a+)+$/) %}}", "End": True}},
    }
    server.deploy("evil", evil)

    def timed() -> float:
        times = []
        with server.caller() as call:
            for _ in range(calls):
                began = time.perf_counter()
                call(PLAIN)
                times.append(time.perf_counter() - began)
        return percentile(times, 0.99)

    timed()
    without = timed()
    for _ in range(20):  # each takes a second of a worker
        check(server.platform.client.post("workflows/evil/executions", json={"input": {}}))
    return without, timed()


@contextmanager
def workflow_server() -> Iterator[WorkflowServer]:
    """Start a server with the workflows that are measured."""
    with scratch() as folder, up(folder) as platform:
        yield WorkflowServer(platform)


def start_with_sleeping_s(count: int, starts: int) -> tuple[list[float], list[float]]:
    """Return the seconds of starts of a server without executions, and with so many that sleep."""
    with scratch() as folder:
        empty, asleep = folder / "empty", folder / "asleep"
        for place, number in ((empty, 0), (asleep, count)):
            place.mkdir()
            _put_to_sleep(place, number)
        without: list[float] = []
        beside: list[float] = []
        for _ in range(starts):
            for place, times in ((empty, without), (asleep, beside)):
                with up(place) as platform:
                    times.append(platform.up_s)
        return without, beside


def _put_to_sleep(place: Path, count: int) -> None:
    with up(place) as platform:
        sleepy = {"StartAt": "A", "States": {"A": {"Type": "Wait", "Seconds": SLEEP_S, "End": True}}}
        platform.client.deploy("sleepy", json.dumps(sleepy), kind="workflow")

        def start(number: int) -> None:
            for _ in range(number):
                check(platform.client.post("workflows/sleepy/executions", json={"input": {}}))

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(start, [count // 8] * 8))
