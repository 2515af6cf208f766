"""Run a kernel graph in this process, with arrays from files of NumPy."""

import hashlib
import io
import json
from collections.abc import Collection, Iterable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import numpy as np

from aliquot.cli.gateway import GatewayClient
from aliquot.cli.kernel_files import GraphFile
from aliquot.core.errors import InputError
from aliquot.kernels.backends.base import KernelError
from aliquot.kernels.executor.runs import KernelResult
from aliquot.kernels.graph import CONST, INPUT, OUTPUT, GraphBuffer, KernelGraph, Scalar
from aliquot.kernels.tensors import make_header, read_header, scalar_problem
from aliquot.sdk import answers
from aliquot.sdk.calls import action_path
from aliquot.sdk.errors import UsageError
from aliquot.sdk.kernels.arrays import numpy_type
from aliquot.sdk.kernels.local import LocalGraph
from aliquot.sdk.wire import HttpRequest, ask

SAFETENSORS = "application/x-safetensors"


def run_here(
    file: GraphFile,
    inputs: Iterable[str],
    constants: Iterable[Path],
    literals: Iterable[str],
    iterations: int | None,
) -> KernelResult:
    """Run a checked graph once on the first device of this machine."""
    graph = file.graph
    arrays = _inputs(graph, _pairs(inputs, "--input"))
    known = {hashlib.sha256(data).hexdigest(): data for data in map(constant_bytes, constants)}
    for name, buffer in graph.named(CONST).items():
        if buffer.sha256 not in known:
            raise InputError(f"constant {name!r} with digest {buffer.sha256[:12]}… is missing; give it with --const")
    values = _literals(graph, _pairs(literals, "--literal"))
    if iterations is not None and not 1 <= iterations <= graph.iterations:
        raise InputError(f"--iterations is {iterations}; the graph takes 1 to {graph.iterations}")
    try:
        return LocalGraph(graph, known | file.programs).run(arrays, values, iterations)
    except (UsageError, KernelError) as error:
        raise InputError(str(error)) from error


def constant_bytes(path: Path) -> bytes:
    """Return the bytes of an array in a file of NumPy, as a graph names them by their digest."""
    return _array(path).tobytes()


def call_file(
    graph: KernelGraph,
    inputs: Iterable[str],
    literals: Iterable[str],
    iterations: int | None,
    outputs: Mapping[str, Any],
) -> bytes:
    """Return the safetensors file that calls a graph on the platform. Inputs may be `NAME=@KEY`, stored objects."""
    pairs = _pairs(inputs, "--input")
    keys = {name: value[1:] for name, value in pairs.items() if value.startswith("@")}
    arrays = _inputs(graph, {name: value for name, value in pairs.items() if name not in keys}, keys)
    rest: dict[str, Any] = {"literals": _literals(graph, _pairs(literals, "--literal")), "outputs": outputs}
    if keys:
        rest["inputs"] = {name: {"key": key} for name, key in keys.items()}
    if iterations is not None:
        rest["iterations"] = iterations
    shapes = {name: (graph.buffers[name].dtype, graph.buffers[name].shape) for name in arrays}
    return make_header(shapes, {"call": json.dumps(rest)}) + b"".join(arrays.values())


def targets(graph: KernelGraph, stored: Iterable[str], *, stay: bool) -> dict[str, Any]:
    """Return the objects that outputs become, from `NAME=KEY`."""
    pairs, known = _pairs(stored, "--store"), graph.named(OUTPUT)
    for name in pairs:
        if name not in known:
            raise InputError(f"--store: no output {name!r}; the graph has {', '.join(known)}")
    if stay and not pairs:
        raise InputError("--stay: no output is stored; name one with --store NAME=KEY")
    return {name: {"key": key, "stay": stay} for name, key in pairs.items()}


def called(gateway: GatewayClient, name: str, body: bytes) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Call a graph on the platform, and return its outputs and counters."""
    query = {"blocking": "true", "result": "true"}
    headers = {"Content-Type": SAFETENSORS}
    reply = gateway.client.run(ask(HttpRequest("POST", action_path(name), query, headers, body)))
    answers.check(reply, name)
    if reply.status != HTTPStatus.OK:
        activation = (reply.json() or {}).get("activationId")
        raise InputError(f"{name} still runs; `aliquot activation get {activation}` shows its record later")
    file = read_header(reply.body)
    found = {output: reply.body[entry.start : entry.end] for output, entry in file.entries.items()}
    return found, json.loads(file.metadata["kernels"])


def npy_bytes(buffer: GraphBuffer, data: bytes) -> bytes:
    """Return the content of the file of NumPy for an output."""
    file = io.BytesIO()
    np.save(file, np.frombuffer(data, numpy_type(buffer.dtype)).reshape(buffer.shape))
    return file.getvalue()


def _inputs(graph: KernelGraph, files: Mapping[str, str], keys: Collection[str] = ()) -> dict[str, bytes]:
    """Return the arrays in files. The inputs `keys` are objects of the platform."""
    wanted = graph.named(INPUT)
    unknown = [name for name in (*files, *keys) if name not in wanted]
    missing = [name for name in wanted if name not in files and name not in keys]
    if unknown or missing:
        problem = f"no input {unknown[0]!r}" if unknown else f"input {missing[0]!r} is missing"
        raise InputError(f"--input: {problem}; the graph has {', '.join(wanted) or 'none'}")
    found = {}
    for name, buffer in wanted.items():
        if name in keys:
            continue
        array = _array(Path(files[name]))
        if array.dtype != np.dtype(numpy_type(buffer.dtype)) or array.shape != buffer.shape:
            expected = f"{buffer.dtype}{list(buffer.shape)}"
            raise InputError(f"--input {name}: {files[name]} is {array.dtype}{list(array.shape)}; expected {expected}")
        found[name] = array.tobytes()
    return found


def _literals(graph: KernelGraph, given: Mapping[str, str]) -> dict[str, Scalar]:
    for name in given:
        if name not in graph.literals:
            raise InputError(f"--literal: no literal {name!r}; the graph has {', '.join(graph.literals) or 'none'}")
    values: dict[str, Scalar] = {}
    for name, literal in graph.literals.items():
        try:
            value = json.loads(given[name]) if name in given else literal.default
        except ValueError:
            value = given[name]
        if value is None:
            raise InputError(f"--literal {name}: it has no default; give it as {name}=VALUE")
        if problem := scalar_problem(literal.dtype, value):
            raise InputError(f"--literal {name}: {problem}")
        values[name] = value
    return values


def _pairs(texts: Iterable[str], option: str) -> dict[str, str]:
    pairs = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InputError(f"{option} {text}: expected NAME=VALUE")
        pairs[name] = value
    return pairs


def _array(path: Path) -> "np.ndarray[Any, Any]":
    try:
        array: np.ndarray[Any, Any] = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read as an array of NumPy: {error}") from error
    return array
