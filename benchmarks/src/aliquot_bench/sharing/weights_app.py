"""Weights handed over by the platform itself: between two sandboxes, and between two functions in one sandbox."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from aliquot.core.units import MIB
from aliquot.testing.client import NamespaceClient, to_pairs
from aliquot.testing.server import LiveServer
from aliquot_bench.environments import MeasurementError, scratch
from aliquot_bench.sharing.platform import FUNCTIONS, MAX_RUN_MS

APP = "weights"
SPARE_MB = 256  # memory for the interpreter and its libraries
MAX_COPIES = 3  # in one sandbox: the weights, the message, and the decoded message
_ANNOTATIONS: dict[str, dict[str, Any]] = {
    "give": {"provide-api-key": True},
    "take": {},
    "hold": {"group": APP},
    "look": {"group": APP},
}


class WeightsApp:
    """The functions of `functions/weights.py` on a running server."""

    def __init__(self, client: NamespaceClient) -> None:
        self._client = client

    def deploy(self, max_bytes: int) -> None:
        """Deploy the functions for weights of up to this size, and start their sandboxes."""
        code = (FUNCTIONS / "weights.py").read_text(encoding="utf-8")
        limits = {"timeout": MAX_RUN_MS, "memory": SPARE_MB + MAX_COPIES * max_bytes // MIB}
        for name, annotations in _ANNOTATIONS.items():
            pairs = to_pairs({"sdk": True, "imports": ["numpy"], **annotations})
            self._client.deploy(f"{APP}.{name}", code, main=name, limits=limits, annotations=pairs)
        for name in ("give", "hold"):
            self._call(name, MIB)

    def between_sandboxes(self, size: int) -> tuple[float, float]:
        """Return the seconds to hand so many bytes to another sandbox, and the seconds to read them there."""
        found = self._call("give", size)
        if not found["whole"]:
            raise MeasurementError("by memory: what was read is not what was given")
        return found["give_s"], found["take_s"]

    def same_object_inside(self, size: int) -> bool:
        """Return whether another function of the group receives the same object and returns it."""
        return bool(self._call("hold", size)["same"])

    def _call(self, name: str, size: int) -> dict[str, Any]:
        return self._client.result(f"{APP}.{name}", {"size": size})


@contextmanager
def weights_app(max_bytes: int) -> Iterator[WeightsApp]:
    """Start a server and deploy the app for weights of up to this size."""
    options = ("--python", sys.executable)  # which has numpy
    with (
        scratch() as folder,
        LiveServer(folder / "data", *options) as server,
        server.client(timeout=MAX_RUN_MS / 1000) as client,
    ):
        app = WeightsApp(client)
        app.deploy(max_bytes)
        yield app
