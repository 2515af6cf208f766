"""The packages of the extra `learn`, which networks need."""

from importlib.util import find_spec

PACKAGES = ("torch", "onnx", "onnxruntime")
INSTALL = "pip install 'aliquot[learn]'"


def missing_packages() -> list[str]:
    """Return the packages that are not installed, without importing any."""
    return [name for name in PACKAGES if find_spec(name) is None]
