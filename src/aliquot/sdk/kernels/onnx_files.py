"""A model in a file of the ONNX format, for a graph of an app. It needs nothing but the standard library."""

from collections.abc import Mapping
from os import PathLike, fspath


class OnnxFile:
    """A model that is read when it is needed, because a sandbox does not have the file."""

    def __init__(self, path: str | PathLike[str], shapes: Mapping[str, tuple[int, ...]]) -> None:
        self.path = fspath(path)
        self.shapes = {name: list(shape) for name, shape in shapes.items()}

    def __repr__(self) -> str:
        return f"<model {self.path}>"

    def content(self) -> bytes:
        """Return the file with the shapes of the values between its nodes, which its memory follows from."""
        import onnx  # from the extra `kernels`

        model = onnx.load(self.path)
        for given in model.graph.input:
            for dimension, size in zip(given.type.tensor_type.shape.dim, self.shapes.get(given.name, ()), strict=False):
                if not dimension.HasField("dim_value"):
                    dimension.dim_value = size
        inferred = onnx.shape_inference.infer_shapes(model, strict_mode=True, data_prop=True)
        return bytes(inferred.SerializeToString(deterministic=True))


def onnx(path: str | PathLike[str], shapes: Mapping[str, tuple[int, ...]] | None = None) -> OnnxFile:
    """Return a model for `app.kernel_graph(name, model)`. `shapes` are those of inputs that the model leaves open."""
    return OnnxFile(path, shapes or {})
