"""Map container images to runtimes. An action of the kind `blackbox` names an image.

Images are never pulled. The operator says which runtime replaces an image, and which requirements it has.
"""

import re
from typing import NamedTuple

from msgspec import Struct

from aliquot.core.errors import InputError

OPTION = "--image"
_CONTINUES = ("<", ">", "=", "!", "~")  # start of another version bound of the requirement before the comma


class RuntimeImage(Struct, frozen=True):
    """An image and the runtime that replaces it."""

    name: str
    kind: str  # runtime that replaces the image
    requirements: tuple[str, ...] = ()


def parse_image(text: str) -> RuntimeImage:
    """Parse the operator's option `NAME=KIND[,REQUIREMENT...]`. Raises `InputError`."""
    name, _, rest = text.strip().partition("=")
    kind, *parts = (part.strip() for part in rest.split(","))
    if not name or not kind or any(not part for part in parts) or not re.fullmatch(r"\S+", name):
        raise InputError(f"{OPTION}: '{text}' is not understood; it takes NAME=KIND or NAME=KIND,REQUIREMENT,...")
    requirements: list[str] = []
    for part in parts:
        if requirements and (part.startswith(_CONTINUES) or requirements[-1].count("[") > requirements[-1].count("]")):
            requirements[-1] += f",{part}"
        else:
            requirements.append(part)
    if bad := [text for text in requirements if text.startswith("-")]:
        raise InputError(f"{OPTION}: '{bad[0]}' is an option; it takes requirements as pip takes them")
    return RuntimeImage(name, kind, tuple(requirements))


def find_image(images: tuple[RuntimeImage, ...], name: str) -> RuntimeImage | None:
    """Return the best match for an image name.

    The path must be equal. Host and tag must be equal if both names have them, and equal ones are preferred.
    """
    asked = _split_name(name)
    fitting = [(image, parts) for image in images if _matches(parts := _split_name(image.name), asked)]
    if not fitting:
        return None
    return max(fitting, key=lambda one: (one[1].tag == asked.tag) + (one[1].host == asked.host))[0]


class _ImageName(NamedTuple):
    host: str
    path: str
    tag: str


def _split_name(name: str) -> _ImageName:
    """Split `host/path:tag`. A host has a dot or a port, or is `localhost`."""
    path, _, tag = name.partition("@")
    host = ""
    first, slash, rest = path.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        host, path = first, rest
    if not tag:
        path, _, tag = path.partition(":")
    return _ImageName(host, path.removeprefix("library/"), tag)


def _matches(one: _ImageName, other: _ImageName) -> bool:
    alike = all(not mine or not theirs or mine == theirs for mine, theirs in zip(one, other, strict=True))
    return alike and one.path == other.path
