"""Packages made by hand, for installations without a network."""

import base64
import hashlib
import io
import zipfile
from collections.abc import Mapping
from pathlib import Path


def make_wheel(name: str, version: str, code: str | Mapping[str, str]) -> tuple[str, bytes]:
    """Return the file name and the contents of a wheel.

    It is a zip with three small files beside the code of one module, or of several by name.
    """
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
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return f"{name}-{version}-py3-none-any.whl", buffer.getvalue()


def wheel(directory: Path, name: str, version: str, code: str | Mapping[str, str]) -> None:
    """Write a wheel into a directory, which is made if it does not exist."""
    file, content = make_wheel(name, version, code)
    directory.mkdir(exist_ok=True)
    (directory / file).write_bytes(content)
