"""A real server with networks of different sizes, and the requests that call them."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from aliquot.testing.client import NamespaceClient, to_pairs
from aliquot.testing.server import LiveServer
from aliquot_bench.environments import scratch
from aliquot_bench.slo.open_loop import post

LEARNED = 12  # calls after which the bounds of a function are known
NETWORK = """
import numpy as np
random = np.random.default_rng(1)
layer = random.standard_normal(({width}, {width}), dtype=np.float32) / {width} ** 0.5

def classify(pictures):
    hidden = np.ascontiguousarray(np.broadcast_to(pictures, (len(pictures), {width})).T, dtype=np.float32)
    for _ in range({layers}):
        hidden = np.tanh(layer @ hidden)
    return hidden.argmax(axis=0).tolist()
"""
SINGLE = "\ndef main(args):\n    return {'class': classify([[args.get('x', 1)]])[0]}\n"
BATCHED = "\ndef main(items):\n    return [{'class': c} for c in classify([[args.get('x', 1)] for args in items])]\n"
ONE_THREAD = {"OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}


@contextmanager
def serving_server(*options: str) -> Iterator[tuple[LiveServer, NamespaceClient]]:
    """Start a server with one virtual device beside the CPU, whose sandboxes find numpy."""
    environment = {**os.environ, **ONE_THREAD}
    needed = ("--devices", "host:1", "--python", sys.executable, *options)
    with (
        scratch() as folder,
        LiveServer(folder / "data", *needed, env=environment) as server,
        server.client() as client,
    ):
        yield server, client


def deploy_network(
    client: NamespaceClient, name: str, width: int, layers: int, *, batch: int = 1, **annotations: object
) -> None:
    """Deploy a network of equal layers, and call it until its run times are known.

    `imports` is left out: a zygote would load numpy before the variables say that it has one thread.
    """
    code = NETWORK.format(width=width, layers=layers) + (BATCHED if batch > 1 else SINGLE)
    own = {"batch": batch, "env": ONE_THREAD, **annotations}
    client.deploy(name, code, annotations=to_pairs({key.replace("_", "-"): value for key, value in own.items()}))
    for number in range(LEARNED):
        client.result(name, {"x": number})


def call_message(client: NamespaceClient, name: str, x: float = 1, deadline_ms: float | None = None) -> bytes:
    """Return the bytes of a request that calls a function and waits for its record."""
    headers = {"Authorization": client.authorization, "Content-Type": "application/json"}
    if deadline_ms is not None:
        headers["x-aliquot-deadline-ms"] = f"{deadline_ms:g}"
    return post(f"/api/v1/namespaces/_/actions/{name}?blocking=true", headers, b'{"x": %g}' % x)
