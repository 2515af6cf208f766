"""The needs of an action whose code is a kernel graph. They follow from the graph, and not from annotations."""

import functools

from msgspec import Struct

from aliquot.core.errors import InputError
from aliquot.kernels.check import check_graph
from aliquot.kernels.graph import OUTPUT, GraphComplaint, KernelGraph
from aliquot.kernels.plan import constant_sizes, plan_memory, program_files
from aliquot.kernels.reading import GraphRefused, read_graph
from aliquot.live.catalogue.entities import Entities
from aliquot.live.store.records import KERNEL, Action

KERNEL_MODULE = "aliquot.kernels.executor.process"  # that serves a graph in its sandbox
DEFAULT_SHARE = 0.5  # one graph runs while another loads
FORMS = ("opencl", "onnx", "cuda")
MAX_FILES = 200  # constants and programs: each comes to the sandbox as a descriptor
MAX_SHOWN = 50  # complaints of one graph
REFUSED_ANNOTATIONS = (
    "gpu-memory", "gpu-memory-limit", "batch", "datasets", "imports", "requirements", "group", "env", "secrets", "sdk",
    "pure", "cache-ttl-ms", "sdk-file", "exit",
)  # fmt: skip


class GraphNeeds(Struct, frozen=True):
    """The device memory of a graph: what stays between calls, and what a run needs besides."""

    form: str
    memory_bytes: int
    run_bytes: int
    constants: dict[str, int]  # sizes by digest
    outputs: dict[str, int]  # sizes by name
    programs: dict[str, int]  # sizes of the files of programs by digest, 0 where a size is not known

    @property
    def files(self) -> dict[str, int]:
        return self.constants | self.programs


def graph_needs(action: Action) -> GraphNeeds:
    """Return the needs of a graph. Raises an `InputError` with every mistake and its place."""
    for key in REFUSED_ANNOTATIONS:
        if action.annotation(key) not in (None, False):
            raise InputError(f"annotation {key}: a kernel graph takes none, since all that it needs follows from it")
    return _needs_of(action.exec.code)


def _checked(code: str) -> KernelGraph:
    graph = read_graph(code)
    if not isinstance(graph, KernelGraph):
        raise GraphRefused([GraphComplaint("model", f"the file {graph.model} is not stored; put its blob")])
    if graph.form not in FORMS:
        raise GraphRefused([GraphComplaint("form", f"is {graph.form!r}; this platform runs {' and '.join(FORMS)}")])
    if complaints := check_graph(graph):
        raise GraphRefused(complaints)
    if (count := len(constant_sizes(graph) | program_files(graph))) > MAX_FILES:
        raise GraphRefused([GraphComplaint("buffers", f"has {count} different constants; at most {MAX_FILES}")])
    return graph


@functools.lru_cache(256)
def _needs_of(code: str) -> GraphNeeds:
    try:
        graph = _checked(code)
    except GraphRefused as refused:
        lines = [str(complaint) for complaint in refused.complaints]
        more = [f"and {len(lines) - MAX_SHOWN} more"] if len(lines) > MAX_SHOWN else []
        raise InputError("The kernel graph has mistakes:\n" + "\n".join(lines[:MAX_SHOWN] + more)) from refused
    plan = plan_memory(graph)
    outputs = {name: buffer.size_bytes for name, buffer in graph.named(OUTPUT).items()}
    return GraphNeeds(
        graph.form, plan.memory_bytes, plan.run_bytes, constant_sizes(graph), outputs, program_files(graph)
    )


def named_blobs(entities: Entities, namespace: str) -> list[str]:
    """Return the digests of the constants and programs of a namespace's kernel graphs."""
    graphs = [action for action in entities.all(Action, namespace) if action.exec.kind == KERNEL]
    return [digest for action in graphs for digest in graph_needs(action).files]
