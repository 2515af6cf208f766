"""Weights handed over by the platform itself: from sandbox to sandbox, and from function to function in one."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx

from aliquot.core.units import MIB
from aliquot.testing.server import LiveServer
from aliquot_bench.environments import MeasurementError, scratch
from aliquot_bench.sharing.platform import FUNCTIONS, MAX_RUN_MS

APP = "weights"
SPARE_MB = 256  # beside the weights: the interpreter and its libraries
COPIES = 3  # at most, in one sandbox: the weights, what is handed over, and what is made of it
_NEEDS: dict[str, dict[str, Any]] = {
    "give": {"provide-api-key": True},
    "take": {},
    "hold": {"group": APP},
    "look": {"group": APP},
}


class WeightsApp:
    """A running server with the app on it."""

    def __init__(self, client: httpx.Client) -> None:
        self._client = client

    def between(self, size: int) -> tuple[float, float]:
        """The seconds to hand so many bytes to another sandbox, and those to read them there."""
        found = self._call("give", size)
        if not found["whole"]:
            raise MeasurementError("by memory: what was read is not what was given")
        return found["give_s"], found["take_s"]

    def inside(self, size: int) -> bool:
        """Whether another function of the group got the very object, and gave it back."""
        return bool(self._call("hold", size)["same"])

    def deploy(self, size: int) -> None:
        code = (FUNCTIONS / "weights.py").read_text(encoding="utf-8")
        limits = {"timeout": MAX_RUN_MS, "memory": SPARE_MB + COPIES * size // MIB}
        for name, needs in _NEEDS.items():
            said = {"sdk": True, "imports": ["numpy"], **needs}
            body = {
                "exec": {"kind": "python:3.11", "code": code, "main": name},
                "limits": limits,
                "annotations": [{"key": key, "value": value} for key, value in said.items()],
            }
            self._client.put(f"actions/{APP}.{name}", json=body).raise_for_status()
        for name in ("give", "hold"):  # so that the sandboxes are there
            self._call(name, MIB)

    def _call(self, name: str, size: int) -> dict[str, Any]:
        query = {"blocking": "true", "result": "true"}
        answer = self._client.post(f"actions/{APP}.{name}", params=query, json={"size": size})
        if answer.status_code != httpx.codes.OK:
            raise MeasurementError(f"{name} answered {answer.status_code}: {answer.text[:200]}")
        result: dict[str, Any] = answer.json()
        return result


@contextmanager
def weights_app(most_bytes: int) -> Iterator[WeightsApp]:
    with scratch() as folder, LiveServer(folder / "data") as server, server.client(timeout=MAX_RUN_MS / 1000) as client:
        platform = WeightsApp(client)
        platform.deploy(most_bytes)
        yield platform
