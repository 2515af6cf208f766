"""Calls with a deadline at twice the machine's capacity: some are promised and end in time, the others are refused."""

import time
from concurrent.futures import ThreadPoolExecutor
from statistics import median

import httpx
from msgspec import Struct

from aliquot.testing.client import from_pairs
from aliquot.testing.server import LiveServer

TENANT, ACTION = "hurried", "label"
DEADLINE_MS, LEARNED, CALLERS = 250, 10, 32
MIN_KEPT = 0.9  # of the promises
CODE = """
import time
def main(args):
    time.sleep(0.04)
    return {}
"""


class DeadlineResult(Struct, frozen=True):
    """The ends of calls that came at once, each with the same deadline."""

    kept: int
    broken: int
    refused_s: list[float]  # time until each refusal
    offer_ms: float | None  # a deadline that would have been accepted

    @property
    def ok(self) -> bool:
        """Return whether calls were promised and others refused, and nearly all promises were kept."""
        promised = self.kept + self.broken
        return bool(self.refused_s) and promised > 0 and self.kept >= MIN_KEPT * promised

    def text(self) -> str:
        promised = self.kept + self.broken
        text = (
            f"Deadlines: of {promised + len(self.refused_s)} calls at once, due in {DEADLINE_MS} ms, {promised} were "
        )
        text += f"promised, and {self.kept} of these ended in time. {len(self.refused_s)} were refused"
        if self.refused_s:
            text += f" after {median(self.refused_s) * 1000:.0f} ms"
        return text + ("." if self.offer_ms is None else f", with an offer such as {self.offer_ms:g} ms.")


def show_deadlines(server: LiveServer) -> DeadlineResult:
    """Call a function often enough that its run time is known, and then from many clients at once."""
    key = server.create_namespace(TENANT)
    with server.client(key) as client:
        client.deploy(ACTION, CODE, annotations=[{"key": "latency-slo-ms", "value": DEADLINE_MS}])
        for _ in range(LEARNED):
            client.post(f"actions/{ACTION}", params={"blocking": "true"}, json={})

    def call(_: int) -> tuple[httpx.Response, float]:
        with server.client(key) as client:
            client.get("actions", params={"limit": 1})  # so that the connection is there
            began = time.monotonic()
            answer = client.post(f"actions/{ACTION}", params={"blocking": "true"}, json={})
            return answer, time.monotonic() - began

    with ThreadPoolExecutor(CALLERS) as threads:
        answers = list(threads.map(call, range(CALLERS)))
    ran = [from_pairs(answer.json()["annotations"])["objective"] for answer, _ in answers if answer.is_success]
    refused = [(answer.json()["refused"], took_s) for answer, took_s in answers if not answer.is_success]
    offers = [one["offer"]["deadline_ms"] for one, _ in refused if "deadline_ms" in one.get("offer", {})]
    kept = sum(objective["met"] for objective in ran)
    return DeadlineResult(kept, len(ran) - kept, [took_s for _, took_s in refused], min(offers, default=None))
