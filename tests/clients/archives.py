"""Zip files, made in memory."""

import io
import zipfile


def zipped(**files):
    """Names are given with `_dot_` for the dot: `index_dot_js="..."`."""
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for name, text in files.items():
            archive.writestr(name.replace("_dot_", "."), text)
    return data.getvalue()
