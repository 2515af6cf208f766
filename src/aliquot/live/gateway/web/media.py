"""Parse media types, and tell text from binary data as OpenWhisk does."""

import re
from typing import NamedTuple

JSON = "application/json"
FORM = "application/x-www-form-urlencoded"
HTML = "text/html"
SVG = "image/svg+xml"

TOKEN = r"[!#$%&'*+.^_`|~0-9A-Za-z-]+"  # noqa: S105 - a token in HTTP's grammar
_TYPE = re.compile(rf"\s*({TOKEN})/({TOKEN})\s*((?:;[^\x00-\x1f\x7f]*)?)")
_PARAMETER = re.compile(rf"\s*({TOKEN})\s*=\s*(\"(?:[^\"\\]|\\.)*\"|{TOKEN})\s*")
_WEIGHT = re.compile(r"; [qQ]=(\d(?:\.\d*)?)(?=;|$)", re.ASCII)
_TEXT = frozenset([
    JSON, FORM, "application/atom+xml", "application/javascript", "application/json-patch+json",
    "application/merge-patch+json", "application/problem+json", "application/rss+xml", "application/soap+xml",
    "application/vnd.api+json", "application/xhtml+xml", "application/xml", "application/xml-dtd",
])  # fmt: skip


class MediaType(NamedTuple):
    """A parsed media type."""

    name: str  # `main/sub`, lower case
    parameters: str  # with their semicolons, without the charset
    has_charset: bool = False

    @property
    def is_json(self) -> bool:
        return self.name == JSON or self.name.endswith("+json")

    @property
    def is_text(self) -> bool:
        return self.name.startswith("text/") or self.name in _TEXT or self.has_charset

    def with_charset(self) -> str:
        """Return the header value for text in UTF-8. JSON needs no charset."""
        return f"{self.name}{self.parameters}" + ("" if self.is_json else "; charset=UTF-8")

    def __str__(self) -> str:
        return f"{self.name}{self.parameters}"


def parse(value: str) -> MediaType | None:
    """Parse a media type, or return None if it is not one."""
    found = _TYPE.fullmatch(value)
    if found is None:
        return None
    main, sub, rest = found.groups()
    parameters, has_charset = "", False
    for part in rest.split(";")[1:]:
        pair = _PARAMETER.fullmatch(part)
        if pair is None:
            if part.strip():
                return None
        elif pair[1].lower() == "charset":
            has_charset = True
        else:
            parameters += f"; {pair[1]}={pair[2]}"
    return MediaType(f"{main}/{sub}".lower(), parameters, has_charset)


class AcceptedTypes:
    """The media types that a client accepts, from its header `Accept`."""

    def __init__(self, header: bytes) -> None:
        self._weights: dict[str, float] = {}  # by `main/sub`, `main/*` or `*/*`
        for part in header.decode("latin-1").split(","):
            kind = parse(part)
            if kind is not None:
                self._weights[kind.name] = _weight(kind.parameters)

    def admit(self, content_type: str) -> bool:
        """Return whether the client accepts the type. A header without any media type accepts everything."""
        kind = parse(content_type)
        if kind is None or not self._weights:
            return True
        ranges = (kind.name, kind.name.partition("/")[0] + "/*", "*/*")  # the most specific one decides
        return next((self._weights[each] for each in ranges if each in self._weights), 0) > 0


def _weight(parameters: str) -> float:
    found = _WEIGHT.search(parameters)
    return float(found[1]) if found else 1


def is_json(content_type: bytes | None) -> bool:
    kind = parse(content_type.decode("latin-1")) if content_type else None
    return kind is not None and kind.is_json
