"""Packages made by hand, for installations without a network."""

import base64
import hashlib
import zipfile
from collections.abc import Mapping
from pathlib import Path


def wheel(directory: Path, name: str, version: str, code: str | Mapping[str, str]) -> None:
    """Write a wheel: a zip with three small files beside the code of one module, or of several by name."""
    info = f"{name}-{version}.dist-info"
    modules = {name: code} if isinstance(code, str) else code
    files = {
        **{f"{module}.py": text for module, text in modules.items()},
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    lines = []
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(text)}")
    files[f"{info}/RECORD"] = "\n".join([*lines, f"{info}/RECORD,,", ""])
    directory.mkdir(exist_ok=True)
    with zipfile.ZipFile(directory / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
