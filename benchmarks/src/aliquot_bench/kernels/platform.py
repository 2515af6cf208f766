"""Real servers with virtual devices, and graphs on them."""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx

from aliquot.kernels.tensors import make_header
from aliquot.testing.client import NamespaceClient, check, to_pairs
from aliquot.testing.server import LiveServer
from aliquot_bench.environments import scratch
from aliquot_bench.kernels.graphs import Blobs, Document

SAFETENSORS = {"content-type": "application/x-safetensors"}
TIMEOUT_S = 300.0


@contextmanager
def kernel_server(*options: str) -> Iterator[tuple[LiveServer, NamespaceClient]]:
    """Start a server whose sandboxes find numpy and pyopencl, with a client of its first namespace."""
    with (
        scratch() as folder,
        LiveServer(folder / "data", "--python", sys.executable, *options) as server,
        server.client(timeout=TIMEOUT_S, limits=httpx.Limits(max_connections=None)) as client,
    ):
        yield server, client


def deploy(client: NamespaceClient, name: str, document: Document, blobs: Blobs, share: float = 0.5) -> None:
    """Store the constants of a graph and deploy it."""
    for digest, data in blobs.items():
        check(client.put(f"blobs/{digest}", content=data))
    client.deploy(
        name, json.dumps(document), kind="kernel:1", limits={"timeout": 60_000},
        annotations=to_pairs({"gpu-share": share}),
    )  # fmt: skip


def body_of(arrays: Mapping[str, Any]) -> bytes:
    """Return the safetensors file that calls a graph with arrays of f4."""
    return make_header({name: ("f4", array.shape) for name, array in arrays.items()}) + b"".join(
        array.tobytes() for array in arrays.values()
    )


def call(client: NamespaceClient, name: str, body: bytes) -> bytes:
    """Call a graph with a safetensors file, and return the file with its outputs."""
    return check(client.post(f"actions/{name}?blocking=true&result=true", content=body, headers=SAFETENSORS)).content
