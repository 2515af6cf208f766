"""The inside of a sandbox that serves a kernel graph: it compiles the graph once, and then runs one call at a time.

A sandbox becomes this when its init names this module. Zygotes import it, so that the libraries are loaded before the
fork. Devices are opened only in the sandbox.
"""

import base64
import contextlib
import hashlib
import json
import mmap
import os
from collections.abc import Collection, Mapping
from math import isfinite
from typing import Any, NamedTuple

from msgspec import to_builtins

from aliquot.kernels.backends.base import BuildFailed
from aliquot.kernels.binding import FileInput, InlineInput, KernelCall, bind_file, bind_json
from aliquot.kernels.executor.call_files import NO_FILES, CallFiles
from aliquot.kernels.executor.compiled_code import CACHES, CODE, pack_code, unpack_code
from aliquot.kernels.executor.device import ExecutorDevice, LoadTime, Resident
from aliquot.kernels.executor.runs import KernelResult, RunInput
from aliquot.kernels.graph import CONST, INPUT, OUTPUT, GraphComplaint, KernelGraph
from aliquot.kernels.reading import GraphRefused, read_graph
from aliquot.kernels.tensors import MAX_HEADER_BYTES, TensorError, TensorFile, from_bytes, make_header, read_header
from aliquot.runtime.progress import PROGRESS

with contextlib.suppress(ImportError):  # without it the graph is refused when it is loaded
    import pyopencl  # noqa: F401 - a zygote loads it once for all its sandboxes
with contextlib.suppress(ImportError):
    import onnxruntime  # noqa: F401 - the same

TRIAL = "trial"
SUCCESS, REFUSED = 0, 1  # as in `aliquot.runtime.frames`


class FileAnswer(NamedTuple):
    """The answer to a safetensors file: a status, a summary as JSON, and the file with the outputs."""

    status: int
    summary: bytes
    file: bytes


class GraphNotLoaded(Exception):  # noqa: N818  # the text is for the user who deployed the graph
    """The graph cannot be compiled or loaded. The text has every complaint."""


class KernelSandbox:
    """A graph on a device. `page` is shared with the server, which reads from it where a killed run was."""

    def __init__(self, resident: Resident, page: Any) -> None:  # noqa: ANN401 - an `mmap`, or a `bytearray` in tests
        self._page = page
        self._max_bytes = 0
        self._constants: Mapping[str, bytes | memoryview] = {}
        self._loaded: LoadTime | None = None  # before the next run
        self._resident = resident

    @property
    def graph(self) -> KernelGraph:
        """The inputs, outputs and literals of its calls."""
        return self._resident.signature

    def load(self, constants: Mapping[str, bytes | memoryview], max_bytes: int) -> None:
        """Bring the constants to the device. Answers have at most `max_bytes`."""
        self._max_bytes, self._constants = max_bytes, constants
        self.reload()

    def reload(self) -> None:
        """Bring the constants again after `unload`. Their files stay mapped."""
        self._resident.load(self._constants.__getitem__)

    def unload(self) -> None:
        """Free what the graph has on the device."""
        self._resident.unload()

    def loaded(self, time: LoadTime) -> None:
        """Report the time of a load with the next run."""
        self._loaded = time

    def _counters(self, result: KernelResult) -> dict[str, Any]:
        """Return the counters of a run, with the time of the load before it."""
        counters: dict[str, Any] = to_builtins(result.counters)
        if self._loaded is not None:
            counters |= {"loadTime": self._loaded.load_ms, "hiddenTime": self._loaded.hidden_ms}
            self._loaded = None
        return counters

    def try_out(self) -> None:
        """Run the list of kernels once on zeroed buffers."""
        inputs = {name: bytes(buffer.size_bytes) for name, buffer in self.graph.named(INPUT).items()}
        literals = {name: literal.default or 0 for name, literal in self.graph.literals.items()}
        self._resident.run(inputs, literals, 1, self._progress)

    def __call__(self, arguments: dict[str, Any], files: CallFiles = NO_FILES) -> dict[str, Any]:
        """Run the call that a JSON body makes."""
        try:
            call = bind_json(self.graph, arguments)
            self._check_call(call, files)
            inputs = self._inputs(call, b"", files)
        except GraphRefused as refused:
            return {"error": _refusal(refused)}
        result = self._run(call, inputs, files.staying)
        stored = self._store(result, files)
        outputs = {name: _listed(self.graph, name, data) for name, data in result.outputs.items() if name not in stored}
        outputs |= {name: {"key": key} for name, key in stored.items()}
        return {"kernels": self._counters(result), "outputs": outputs}

    def run_file(self, payload: bytes | memoryview, files: CallFiles = NO_FILES) -> FileAnswer:
        """Run the call that a safetensors file makes. Its arrays are used where they are."""
        try:
            file = _whole_file(payload)
            call = bind_file(self.graph, file)
            self._check_call(call, files)
            inputs = self._inputs(call, payload, files)
        except TensorError as error:
            return _refused_file(GraphRefused([GraphComplaint("the file", str(error))]))
        except GraphRefused as refused:
            return _refused_file(refused)
        result = self._run(call, inputs, files.staying)
        stored = self._store(result, files)
        counters = self._counters(result)
        sent = {name: data for name, data in result.outputs.items() if name not in stored}
        arrays = {name: (self.graph.buffers[name].dtype, self.graph.buffers[name].shape) for name in sent}
        keys = {name: {"key": key} for name, key in stored.items()}
        about = {"kernels": json.dumps(counters)} | ({"outputs": json.dumps(keys)} if keys else {})
        body = make_header(arrays, about) + b"".join(sent.values())
        summary = {"kernels": counters, "safetensors": True, "size": len(body)} | ({"outputs": keys} if keys else {})
        return FileAnswer(SUCCESS, json.dumps(summary, separators=(",", ":")).encode(), body)

    def _check_call(self, call: KernelCall, files: CallFiles) -> None:
        """Refuse a call whose answer is too large, or whose outputs cannot become objects, before it runs."""
        if unknown := [name for name in call.outputs if name not in files.keys]:
            reason = "cannot become an object here: the device is on another node than the objects"
            raise GraphRefused([GraphComplaint(f"output {name!r}", reason) for name in unknown])
        outputs = self.graph.named(OUTPUT).items()
        size_bytes = sum(buffer.size_bytes for name, buffer in outputs if name not in files.keys)
        if size_bytes > self._max_bytes:
            reason = f"take {size_bytes} bytes; an answer has at most {self._max_bytes}"
            raise GraphRefused([GraphComplaint("the outputs", reason)])

    def _inputs(self, call: KernelCall, payload: bytes | memoryview, files: CallFiles) -> dict[str, RunInput]:
        """Return the bytes of the inputs, or where they are on the device. Raises `GraphRefused` or `ObjectDamaged`."""
        inputs: dict[str, RunInput] = {}
        for name, given in call.inputs.items():
            if isinstance(given, InlineInput):
                inputs[name] = given.data
            elif isinstance(given, FileInput):
                inputs[name] = memoryview(payload)[given.start : given.end]
            else:
                inputs[name] = files.read(name, given.key, self.graph.buffers[name])
        return inputs

    def _store(self, result: KernelResult, files: CallFiles) -> dict[str, str]:
        """Hand over the outputs that become objects, and return their keys by name."""
        keys = files.keys
        for name, memory in result.kept.items():
            files.keep(name, self._resident.backend, memory, self.graph.buffers[name].size_bytes)
        for name in files.keys:
            files.write(name, result.outputs[name])
        return keys

    def _run(self, call: KernelCall, inputs: Mapping[str, RunInput], kept: Collection[str]) -> KernelResult:
        try:
            return self._resident.run(inputs, call.literals, call.iterations, self._progress, kept)
        finally:
            PROGRESS.pack_into(self._page, 0, 0, 0)

    def _progress(self, iteration: int, kernel: int) -> None:
        PROGRESS.pack_into(self._page, 0, kernel + 1, iteration)


class TriedGraph:
    """A graph that has been tried out. It answers any request with the code that was compiled for it."""

    def __call__(self, _arguments: dict[str, Any]) -> dict[str, Any]:
        return {}

    def run_file(self, _payload: bytes | memoryview) -> FileAnswer:
        """Return the compiled code as an archive, which is empty if there is none."""
        return FileAnswer(SUCCESS, b"{}", pack_code())


def load_trial(description: dict[str, Any]) -> TriedGraph:
    """Compile the graph of an init, and run its list of kernels once on zeros. Raises `GraphNotLoaded`."""
    load(description)
    return TriedGraph()


def load(description: dict[str, Any], device: ExecutorDevice | None = None) -> KernelSandbox:
    """Return the graph of an init, compiled and with its constants on the device. Raises `GraphNotLoaded`.

    With the entry point `trial` the list of kernels is also run once.
    """
    os.environ.update(CACHES)
    page = description.get("page") or bytearray(PROGRESS.size)
    try:
        graph = read_graph(description["code"])
        if not isinstance(graph, KernelGraph):
            raise GraphNotLoaded("the layout of the model is missing")
        descriptors = description.get("constants") or {}
        if CODE in descriptors:
            unpack_code(descriptors[CODE])
        files = _files(_program_names(graph), descriptors)
        sandbox = KernelSandbox((device or ExecutorDevice()).make_resident(graph, files), page)
        if description["main"] == TRIAL:
            zeros = {buffer.sha256: bytes(buffer.size_bytes) for buffer in sandbox.graph.named(CONST).values()}
            sandbox.load(zeros, 0)
            sandbox.try_out()
        else:
            constants = {buffer.sha256: f"constant {name!r}" for name, buffer in graph.named(CONST).items()}
            sandbox.load(_files(constants, descriptors), description["result_bytes"])
    except BuildFailed as failed:
        raise GraphNotLoaded(f"a program does not compile:\n{failed.log}") from failed
    except GraphRefused as refused:
        raise GraphNotLoaded("\n".join(map(str, refused.complaints))) from refused
    PROGRESS.pack_into(page, 0, 0, 0)
    return sandbox


def _program_names(graph: KernelGraph) -> dict[str, str]:
    """Return the programs that are files, by digest, as errors name them."""
    return {program.sha256: f"program {name!r}" for name, program in graph.programs.items() if program.sha256}


def _files(names: Mapping[str, str], descriptors: Mapping[str, int]) -> dict[str, bytes | memoryview]:
    """Map files, and check their digests: a disk may have damaged them. `names` has what each is, by digest."""
    found: dict[str, bytes | memoryview] = {}
    for digest, name in names.items():
        data = _mapped(descriptors[digest]) if digest in descriptors else b""
        if hashlib.sha256(data).hexdigest() != digest:
            raise GraphNotLoaded(f"the {name} ({digest}) is damaged or gone; put its blob again")
        found[digest] = data
    return found


def _mapped(descriptor: int) -> bytes | memoryview:
    try:
        size = os.fstat(descriptor).st_size
        return memoryview(mmap.mmap(descriptor, size, prot=mmap.PROT_READ)) if size else b""
    finally:
        os.close(descriptor)


def _whole_file(payload: bytes | memoryview) -> TensorFile:
    file = read_header(bytes(memoryview(payload)[: MAX_HEADER_BYTES + 8]))
    if file.size_bytes != len(payload):
        raise TensorError(f"has {len(payload)} bytes; its header says {file.size_bytes}")
    return file


def _refusal(refused: GraphRefused) -> dict[str, Any]:
    return {"complaints": [str(complaint) for complaint in refused.complaints]}


def _refused_file(refused: GraphRefused) -> FileAnswer:
    return FileAnswer(REFUSED, json.dumps({"error": _refusal(refused)}, separators=(",", ":")).encode(), b"")


def _listed(graph: KernelGraph, name: str, data: bytes) -> object:
    """Return an output as nested lists, or as base64 if JSON cannot hold its numbers."""
    buffer = graph.named(OUTPUT)[name]
    values = from_bytes(buffer.dtype, buffer.shape, data)
    return values if _is_finite(values) else {"base64": base64.b64encode(data).decode()}


def _is_finite(values: object) -> bool:
    if isinstance(values, list):
        return all(map(_is_finite, values))
    return not isinstance(values, float) or isfinite(values)
