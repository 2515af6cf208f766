"""A function that reads the files of one session in order, from its dataset or from the origin itself.

It returns when it had read each file, in seconds of the monotonic clock, which all processes share.
"""

import http.client
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote, urlsplit

BUFFER_BYTES = 1 << 20


class Readable(Protocol):
    def readinto(self, buffer: memoryview, /) -> int | None: ...


def main(args: dict[str, Any]) -> dict[str, Any]:
    began = time.monotonic()
    files = args["files"]
    if args.get("origin"):
        reads = _from_origin(args["origin"], files)
    else:
        reads = _from_view(Path(os.environ["ALIQUOT_DATASETS"]) / args["dataset"], files)
    sizes, marks = [], []
    for size in reads:
        sizes.append(size)
        marks.append(time.monotonic())
    return {"began": began, "sizes": sizes, "marks": marks}


def _from_view(folder: Path, files: list[str]) -> Iterator[int]:
    buffer = memoryview(bytearray(BUFFER_BYTES))
    for name in files:
        with (folder / name).open("rb", buffering=0) as file:
            yield _drain(file, buffer)


def _from_origin(url: str, files: list[str]) -> Iterator[int]:
    """Read as a plain mount does at best: one round trip to look a file up, one to read it, and no cache."""
    buffer = memoryview(bytearray(BUFFER_BYTES))
    where = urlsplit(url)
    connection = http.client.HTTPConnection(where.hostname or "", where.port, timeout=60)
    try:
        for name in files:
            _drain(_request(connection, "HEAD", f"{where.path}/{quote(name)}"), buffer)
            yield _drain(_request(connection, "GET", f"{where.path}/{quote(name)}"), buffer)
    finally:
        connection.close()


def _request(connection: http.client.HTTPConnection, method: str, path: str) -> http.client.HTTPResponse:
    connection.request(method, path)
    answer = connection.getresponse()
    if answer.status != http.client.OK:
        raise OSError(f"{path}: the origin answered {answer.status}")
    return answer


def _drain(file: Readable, buffer: memoryview) -> int:
    size = 0
    while count := file.readinto(buffer):
        size += count
    return size
