"""Images of other platforms, mapped to what runs here: an action of the kind `blackbox` names one.

Nothing is ever pulled. The operator says which runtime stands for an image, and what it must have installed.
"""

import re
from typing import NamedTuple

from msgspec import Struct

from aliquot.core.errors import InputError

OPTION = "--image"
_CONTINUES = ("<", ">", "=", "!", "~")  # a further bound of the requirement before the comma


class Image(Struct, frozen=True):
    name: str
    kind: str  # that runs it
    requirements: tuple[str, ...] = ()


def parse_image(text: str) -> Image:
    """`NAME=KIND[,REQUIREMENT...]`, as the operator gives it. Raises `InputError`."""
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
    return Image(name, kind, tuple(requirements))


def find_image(images: tuple[Image, ...], name: str) -> Image | None:
    """The one that stands for an image: the same path, and the same host and tag where both tell them. The closest."""
    asked = _parts(name)
    fitting = [(image, parts) for image in images if _fit(parts := _parts(image.name), asked)]
    if not fitting:
        return None
    return max(fitting, key=lambda one: (one[1].tag == asked.tag) + (one[1].host == asked.host))[0]


class _Parts(NamedTuple):
    host: str
    path: str
    tag: str


def _parts(name: str) -> _Parts:
    """`host/path:tag`; a host has a dot or a port."""
    path, _, tag = name.partition("@")
    host = ""
    first, slash, rest = path.partition("/")
    if slash and ("." in first or ":" in first or first == "localhost"):
        host, path = first, rest
    if not tag:
        path, _, tag = path.partition(":")
    return _Parts(host, path.removeprefix("library/"), tag)


def _fit(one: _Parts, other: _Parts) -> bool:
    alike = all(not mine or not theirs or mine == theirs for mine, theirs in zip(one, other, strict=True))
    return alike and one.path == other.path
