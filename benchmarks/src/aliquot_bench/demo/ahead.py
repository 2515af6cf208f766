"""A function that is called at regular times: its sandbox is stopped in between, and started ahead of the next call."""

import time
from pathlib import Path

from msgspec import Struct

from aliquot.testing.client import NamespaceClient, from_pairs
from aliquot.testing.server import LiveServer

ACTION = "report"
STEP_S, PERIOD_STEPS = 0.4, 4
PERIOD_S = STEP_S * PERIOD_STEPS
MAX_CALLS = 60
OPTIONS = ("--keepalive", "hazard", "--set", f"hazard.step_s={STEP_S}", "--set", "hazard.price=15")
CODE = """
import time
time.sleep(0.08)  # like an import that takes long

def main(args):
    return {}
"""


class AheadResult(Struct, frozen=True):
    """The calls until one found a sandbox that was started ahead of it."""

    cold: int  # calls that waited for a start
    calls: int
    cold_s: float  # how long the first call took
    warm_s: float | None  # how long the call took that found the sandbox; None if none did
    hidden_s: float  # duration of the start that it did not see

    @property
    def ok(self) -> bool:
        """Return whether a cold start was avoided, and the call was faster than the cold one."""
        return self.warm_s is not None and self.warm_s < self.cold_s

    def text(self) -> str:
        regular = f"Ahead: a function was called every {PERIOD_S:g} s, and its sandbox stopped in between."
        if self.warm_s is None:
            return f"{regular} NO cold start was avoided in {self.calls} calls."
        return (
            f"{regular} {self.cold} of {self.calls} calls were cold, {1000 * self.cold_s:.0f} ms the first. Then its"
            f" sandbox was started ahead of a call, which took {1000 * self.warm_s:.0f} ms. The record says that"
            f" {1000 * self.hidden_s:.0f} ms of a start were hidden."
        )


def show_ahead(folder: Path) -> AheadResult:
    """Call a function at regular times until a start of its sandbox was ahead of a call. It takes about 15 s."""
    with LiveServer(folder / "ahead", *OPTIONS, folder=folder) as server, server.client() as client:
        client.deploy(ACTION, CODE)
        return _call_until_hidden(client)


def _call_until_hidden(client: NamespaceClient) -> AheadResult:
    began_s = time.monotonic()
    cold, first_s = 0, 0.0
    for number in range(MAX_CALLS):
        time.sleep(max(0.0, began_s + number * PERIOD_S - time.monotonic()))
        called_s = time.monotonic()
        told = from_pairs(client.call(ACTION, {})["annotations"])
        took_s = time.monotonic() - called_s
        cold += told["start"] == "cold"
        first_s = first_s or took_s
        if "hold" in told:
            return AheadResult(cold, number + 1, first_s, took_s, told["hold"]["hiddenTime"] / 1000)
    return AheadResult(cold, MAX_CALLS, first_s, None, 0.0)
