"""Check the paths of files in a dataset: relative, separated by `/`, and never outside it."""

from aliquot.storage.errors import PathError

MAX_PATH_BYTES = 4096  # Linux's limit
MAX_NAME_BYTES = 255


def check_path(path: str) -> str:
    """Return the path if it can name a file of a dataset. Raises `PathError` otherwise."""
    wrong = _fault_of(path)
    if wrong:
        raise PathError(f"path {path!r}: {wrong}; a path of a dataset is relative, such as train/0001.png")
    return path


def _fault_of(path: str) -> str:
    try:
        encoded = path.encode()
    except UnicodeEncodeError:
        return "it is not text in UTF-8"
    if not path:
        return "it is empty"
    if "\0" in path:
        return "it has a NUL in it"
    if path.startswith("/"):
        return "it is absolute"
    names = path.split("/")
    if any(name in {"", ".", ".."} for name in names):
        return "it has an empty part, or `.` or `..`, in it"
    if len(encoded) > MAX_PATH_BYTES or any(len(name.encode()) > MAX_NAME_BYTES for name in names):
        return f"it is longer than {MAX_PATH_BYTES} bytes, or a part of it than {MAX_NAME_BYTES}"
    return ""
