"""Origins of datasets: one file per kind, and the table that finds the kind of an address."""

import re
from collections.abc import Callable, Mapping
from typing import TypeAlias

from aliquot.core.errors import InputError
from aliquot.storage.origins.base import Origin
from aliquot.storage.origins.fsspec_origin import FsspecOrigin
from aliquot.storage.origins.http import HttpOrigin
from aliquot.storage.origins.local import LocalOrigin
from aliquot.storage.origins.rsync import RsyncOrigin
from aliquot.storage.records import Dataset

Make: TypeAlias = Callable[[str, Mapping[str, str]], Origin]

ORIGINS: dict[str, Make] = {
    "file": LocalOrigin,
    "http": HttpOrigin,
    "https": HttpOrigin,
    "rsync": RsyncOrigin,
}
_REMOTE = re.compile(r"[^/:\s]+::?[^:]")  # rsync's host:path or host::module


def origin_for(dataset: Dataset) -> Origin:
    """Return the origin of a dataset without connecting to it. Raises `InputError` for an invalid address."""
    scheme, separator, _ = dataset.url.partition("://")
    if separator:
        return ORIGINS.get(scheme, FsspecOrigin)(dataset.url, dataset.options)
    if dataset.url.startswith("/"):
        return LocalOrigin(dataset.url, dataset.options)
    if _REMOTE.match(dataset.url):
        return RsyncOrigin(dataset.url, dataset.options)
    raise InputError(
        f"url {dataset.url!r}: an absolute path, a URL such as s3://bucket/folder or https://host/folder, "
        "rsync://host/module/folder, or host:/folder for rsync over SSH"
    )


__all__ = ["ORIGINS", "Origin", "origin_for"]
