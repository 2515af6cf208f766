"""A manifest lists a dataset's files, one JSON object a line, for origins that cannot list or are slow to.

{"path": "train/0001.png", "size": 48211, "checksum": "sha256:9f2c…"}
"""

from collections.abc import Callable, Iterator

import msgspec

from aliquot.core.units import KIB
from aliquot.storage.errors import OriginError
from aliquot.storage.records import Listed

MAX_LINE_BYTES = 64 * KIB


class _ManifestLine(msgspec.Struct, frozen=True):
    path: str
    size: int
    checksum: str = ""


_decoder = msgspec.json.Decoder(_ManifestLine)


def read_manifest(readline: Callable[[int], str], where: str) -> Iterator[Listed]:
    """Yield the files without versions, which the origin looks up when a file is needed."""
    for number, line in enumerate(iter(lambda: readline(MAX_LINE_BYTES + 1), ""), start=1):
        if len(line) > MAX_LINE_BYTES:
            raise OriginError(f"{where}: manifest, line {number}: it is longer than {MAX_LINE_BYTES} bytes")
        if not line.strip():
            continue
        try:
            file = _decoder.decode(line)
        except msgspec.MsgspecError as error:
            raise OriginError(
                f"{where}: manifest, line {number}: {error}; a line is {{path, size, checksum}}"
            ) from error
        yield Listed(file.path, file.size, "", file.checksum)
