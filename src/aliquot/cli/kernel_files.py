"""Read kernel graphs from files: JSON, or models in the ONNX format."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from aliquot.core.errors import InputError
from aliquot.kernels.check import check_graph
from aliquot.kernels.graph import GraphComplaint, KernelGraph, ModelGraph
from aliquot.kernels.models import model_kernels
from aliquot.kernels.reading import GraphRefused, read_graph
from aliquot.sdk.kernels.onnx_files import OnnxFile

MODEL_SUFFIX = ".onnx"


class GraphFile(NamedTuple):
    """A checked graph, the code that the platform takes for it, and the files of its programs by digest."""

    graph: KernelGraph
    code: str
    programs: dict[str, bytes]


def read_file(file: Path, shapes: Iterable[str]) -> GraphFile:
    """Read and check a graph. Raises `GraphRefused` with all mistakes, or `InputError`. `shapes` are of a model."""
    if file.suffix == MODEL_SUFFIX:
        return _read_model(file, _read_shapes(shapes))
    if given := list(shapes):
        raise InputError(f"--shape {given[0]}: {file} is no model ({MODEL_SUFFIX}); its buffers have their shapes")
    try:
        text = file.read_bytes()
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from error
    graph = read_graph(text)
    if not isinstance(graph, KernelGraph):
        reason = "names a model by its digest; give the model itself, FILE.onnx with --shape"
        raise GraphRefused([GraphComplaint("model", reason)])
    if complaints := check_graph(graph):
        raise GraphRefused(complaints)
    return GraphFile(graph, text.decode(), {})


def checked_file(file: Path, shapes: Iterable[str]) -> GraphFile:
    """Read and check a graph. Raises `InputError` with all mistakes."""
    try:
        return read_file(file, shapes)
    except GraphRefused as refused:
        raise InputError(f"{file}: {refused}") from refused


def _read_model(file: Path, shapes: dict[str, tuple[int, ...]]) -> GraphFile:
    try:
        content = OnnxFile(file, shapes).content()
    except ImportError as error:
        raise InputError(f"{file}: models need: pip install 'aliquot[kernels]'") from error
    except OSError as error:
        raise InputError(f"{file} cannot be read: {error.strerror}") from error
    except Exception as error:
        raise InputError(f"{file} is no ONNX model that can be read: {error}") from error
    digest = hashlib.sha256(content).hexdigest()
    graph = model_kernels(ModelGraph(digest, shapes), content)
    listed = {name: list(shape) for name, shape in shapes.items()}
    code = json.dumps({"form": "onnx", "model": {"sha256": digest}, "shapes": listed})
    return GraphFile(graph, code, {digest: content})


def _read_shapes(texts: Iterable[str]) -> dict[str, tuple[int, ...]]:
    shapes = {}
    for text in texts:
        name, _, sizes = text.partition("=")
        try:
            shapes[name] = tuple(int(size) for size in sizes.split(",") if size)
        except ValueError as error:
            raise InputError(f"--shape {text}: expected NAME=SIZE,SIZE, such as image=1,3,224,224") from error
    return shapes
