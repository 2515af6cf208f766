"""Try a kernel graph out when it is deployed, and answer calls that do not fit their graph."""

import asyncio
import json

from msgspec.structs import replace

from aliquot.core.errors import InputError
from aliquot.kernels.digest import describe
from aliquot.kernels.graph import Graph, GraphComplaint, KernelGraph, ModelGraph
from aliquot.kernels.models import model_kernels
from aliquot.kernels.reading import GraphRefused, read_graph
from aliquot.live.catalogue.kernel_graphs import MAX_SHOWN, graph_needs
from aliquot.live.gateway.entities.wire import ActionPut
from aliquot.live.gateway.http.refusal import Refusal
from aliquot.live.invocations.kernel_trials import KernelTrials
from aliquot.live.objects.registry import ObjectRegistry
from aliquot.live.store.records import KERNEL, Action, Pair

TRIAL = "trial"  # annotation with what came of a trial that did not end


def check_constants(action: Action, objects: ObjectRegistry | None) -> None:
    """Raise a 400 if a constant of the graph is not stored in its namespace, or has another size."""
    missing = []
    needs = graph_needs(action)
    for digest, size_bytes in needs.files.items():
        found = None if objects is None else objects.blob_size(action.namespace, digest)
        what = f"the {'program' if digest in needs.programs else 'constant'} {digest}"
        if found is None:
            size = f" of {size_bytes} bytes" if size_bytes else ""
            missing.append(f"{what}{size} is not stored; put it under blobs/{digest}")
        elif size_bytes and found != size_bytes:
            missing.append(f"{what} has {found} bytes; the graph says {size_bytes}")
    if missing:
        raise Refusal(400, "The kernel graph cannot be deployed:\n" + "\n".join(missing))


async def with_layouts(put: ActionPut, namespace: str, objects: ObjectRegistry | None) -> ActionPut:
    """Return the request with a graph for its model, whose layout is read from the stored file. Raises a 400.

    A graph that has a layout is checked against the file. Every other request is returned as it is.
    """
    if objects is None or put.exec is None or put.exec.kind != KERNEL or '"onnx"' not in (put.exec.code or ""):
        return put
    try:
        graph = read_graph(put.exec.code or "")
        found = await asyncio.to_thread(_with_layout, graph, namespace, objects)
    except GraphRefused as refused:
        lines = [str(complaint) for complaint in refused.complaints[:MAX_SHOWN]]
        raise Refusal(400, "The kernel graph has mistakes:\n" + "\n".join(lines)) from refused
    return replace(put, exec=replace(put.exec, code=json.dumps(describe(found), ensure_ascii=False)))


def _with_layout(graph: Graph, namespace: str, objects: ObjectRegistry) -> Graph:
    def read(model: ModelGraph) -> KernelGraph:
        if objects.blob_size(namespace, model.model) is None:
            reason = f"the file is not stored; put it under blobs/{model.model}"
            raise GraphRefused([GraphComplaint("model", reason)])
        return model_kernels(model, objects.files.read(namespace, model.model))

    if isinstance(graph, ModelGraph):
        return read(graph)
    for name, program in graph.programs.items():
        if program.model is not None:
            shapes = {tensor.name: tensor.shape for tensor in program.model.inputs}
            (stored,) = read(ModelGraph(program.sha256, shapes)).programs.values()
            if stored != program:
                reason = "differs from what its file says; leave programs out, and give model and shapes"
                raise GraphRefused([GraphComplaint(f"programs.{name}", reason)])
    return graph


async def try_out(action: Action, old: Action | None, trials: KernelTrials | None) -> Action:
    """Return the action after a trial of its graph, which is left out if the code is the same. Raises a 400."""
    if trials is None or (old is not None and old.exec == action.exec):
        return action
    try:
        note = await trials.check(action)
    except InputError as error:
        raise Refusal(400, str(error)) from error
    annotations = [pair for pair in action.annotations if pair.key != TRIAL]
    annotations += [] if note is None else [Pair(TRIAL, note)]
    return replace(action, annotations=tuple(annotations))
