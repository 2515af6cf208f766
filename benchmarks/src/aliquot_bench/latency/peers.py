"""The systems that Aliquot is compared with. Each serves a JSON echo with one worker.

The program of a peer is a text and not a module, because it runs in the peer's own environment, which has no Aliquot.
Its first argument is its port. A new peer is one entry in the table.
"""

from pathlib import Path

from msgspec import Struct

from aliquot_bench.environments import INTERPRETER
from aliquot_bench.latency.wrk import LoadEndpoint

TORCH = "torch==2.13.0"  # pinned, because a plain `torch` installs gigabytes of GPU libraries

RAY = """
import sys, time
import ray
from ray import serve
from starlette.requests import Request

@serve.deployment(num_replicas=1, max_ongoing_requests=100)
class Echo:
    async def __call__(self, request: Request):
        return await request.json()

ray.init(num_cpus=2, include_dashboard=False, logging_level="warning")
serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
serve.run(Echo.bind(), name="echo", route_prefix="/")
while True:
    time.sleep(60)
"""

LITSERVE = """
import sys
import litserve

class Echo(litserve.LitAPI):
    def setup(self, device): pass
    def predict(self, x): return x

if __name__ == "__main__":
    server = litserve.LitServer(Echo(), accelerator="cpu", workers_per_device=1)
    server.run(host="127.0.0.1", port=int(sys.argv[1]), num_api_servers=1, generate_client_file=False,
               log_level="warning")
"""

BENTOML = """
import bentoml

@bentoml.service(workers=1)
class Echo:
    @bentoml.api
    def echo(self, payload: dict) -> dict:
        return payload
"""

KSERVE = """
import sys
from kserve import Model, ModelServer

class Echo(Model):
    def __init__(self):
        super().__init__("echo")
        self.ready = True
    async def predict(self, payload, headers=None, response_headers=None):
        return payload

if __name__ == "__main__":
    ModelServer(http_port=int(sys.argv[1]), workers=1, enable_grpc=False).start([Echo()])
"""

PYTRITON = """
import sys
import numpy as np
from pytriton.decorators import batch
from pytriton.model_config import ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig

@batch
def echo(x):
    return {"y": x}

port = int(sys.argv[1])
config = TritonConfig(http_address="127.0.0.1", http_port=port, allow_grpc=False, allow_metrics=False)
with Triton(config=config) as triton:
    triton.bind(model_name="echo", infer_func=echo, inputs=[Tensor(name="x", dtype=np.float32, shape=(1,))],
                outputs=[Tensor(name="y", dtype=np.float32, shape=(1,))], config=ModelConfig(max_batch_size=32))
    triton.serve()
"""


class PeerSystem(Struct, frozen=True):
    """The commands to install, start and call a system."""

    name: str
    folder: str  # name of its environment, which several entries may share
    requirements: tuple[str, ...]  # installed in this order; the version shown is that of the last
    program: str
    settings: str  # changed settings and important defaults, for the table
    command: tuple[str, ...] = ("{python}", "{program}", "{port}")
    path: str = "/"
    body: str = "{}"
    environment: dict[str, str] = {}
    interpreter: str = INTERPRETER

    def endpoint(self, port: int) -> LoadEndpoint:
        return LoadEndpoint(f"http://127.0.0.1:{port}", (self.path,), self.body)

    def start(self, environment: Path, program: Path, port: int) -> list[str]:
        """Return the command that starts it."""
        binaries = environment / "bin"
        names = {"python": binaries / "python", "bin": binaries, "program": program, "stem": program.stem, "port": port}
        return [part.format(**names) for part in self.command]


RAY_QUIET = {"RAY_USAGE_STATS_ENABLED": "0"}
RAY_HAPROXY = {**RAY_QUIET, "RAY_SERVE_ENABLE_HA_PROXY": "1"}
SYSTEM_PYTHON = "/usr/bin/python3.11"  # Triton's Python stub is linked to the system's library
TRITON_BODY = '{"inputs":[{"name":"x","shape":[1,1],"datatype":"FP32","data":[1.0]}]}'

PEERS = (
    PeerSystem(
        "Ray Serve",
        "ray",
        ("ray[serve]",),
        RAY,
        "1 replica; max_ongoing_requests 100 in place of 5; no dashboard",
        environment=RAY_QUIET,
    ),
    PeerSystem(
        "Ray Serve, HAProxy",
        "ray",
        ("ray[serve]",),
        RAY,
        "as above, RAY_SERVE_ENABLE_HA_PROXY=1 (the HAProxy that its package brings, 4 threads)",
        environment=RAY_HAPROXY,
    ),
    PeerSystem(
        "Ray Serve, HAProxy, tuned",
        "ray",
        ("ray[serve]",),
        RAY,
        "as above, RAY_SERVE_THROUGHPUT_OPTIMIZED=1 (user code on the replica's own loop, logs buffered)",
        environment={**RAY_HAPROXY, "RAY_SERVE_THROUGHPUT_OPTIMIZED": "1"},
    ),
    PeerSystem(
        "LitServe",
        "litserve",
        (TORCH, "litserve"),
        LITSERVE,
        "1 API server, 1 worker process; accelerator cpu",
        path="/predict",
    ),
    PeerSystem(
        "BentoML",
        "bentoml",
        ("bentoml",),
        BENTOML,
        "1 worker; a synchronous method, in its thread pool as documented",
        command=("{bin}/bentoml", "serve", "{stem}:Echo", "--host", "127.0.0.1", "--port", "{port}"),
        path="/echo",
        body='{"payload":{}}',
        environment={"BENTOML_DO_NOT_TRACK": "True"},
    ),
    PeerSystem(
        "KServe",
        "kserve",
        ("kserve",),
        KSERVE,
        "1 uvicorn worker; protocol v1; gRPC off",
        path="/v1/models/echo:predict",
        body='{"instances":[]}',
    ),
    PeerSystem(
        "pytriton",
        "pytriton",
        ("nvidia-pytriton",),
        PYTRITON,
        "Triton with one Python process; a tensor of one number; dynamic batching up to 32, as installed",
        path="/v2/models/echo/infer",
        body=TRITON_BODY,
        interpreter=SYSTEM_PYTHON,
    ),
)
