"""Read fields of JSON objects, and note every mistake with its place instead of stopping at the first."""

import re
from collections.abc import Callable, Iterable
from typing import TypeVar

from aliquot.kernels.graph import GraphComplaint
from aliquot.kernels.tensors import DTYPES, MAX_DIMENSIONS

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}")
DIGEST = re.compile(r"[0-9a-f]{64}")
NAME_RULE = "a name begins with a letter or _ and has at most 128 letters, digits, _, . and -"

Json = object
Item = TypeVar("Item")


def shown(value: Json) -> str:
    """Return a value as an error shows it: short."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."  # noqa: PLR2004  # so that a complaint fits two lines


class FieldReader:
    """Reads one JSON object. All readers of a document share the list of complaints."""

    def __init__(self, value: Json, place: str, complaints: list[GraphComplaint]) -> None:
        self.place = place
        self._complaints = complaints
        self._values: dict[str, Json] = {}
        self._read: set[str] = set()
        if isinstance(value, dict):
            self._values = value
        else:
            self.complain("", f"is {shown(value)}; expected an object")

    def complain(self, field: str, reason: str) -> None:
        place = f"{self.place}.{field}" if self.place and field else self.place or field
        self._complaints.append(GraphComplaint(place or "the graph", reason))

    def take(self, field: str, default: Json = None) -> Json:
        """Return the value of a field, which is then known."""
        self._read.add(field)
        return self._values.get(field, default)

    def __contains__(self, field: str) -> bool:
        return field in self._values

    def keys(self) -> Iterable[str]:
        return self._values.keys()

    def close(self) -> None:
        """Complain of fields that nobody asked for."""
        for field in self._values:
            if field not in self._read:
                self.complain(field, f"is not known; known are {', '.join(sorted(self._read))}")

    def text(self, field: str, default: str = "", *, max_bytes: int = 1024) -> str:
        value = self.take(field, default)
        if not isinstance(value, str):
            self.complain(field, f"is {shown(value)}; expected a text")
            return default
        if len(value.encode(errors="replace")) > max_bytes:
            self.complain(field, f"has {len(value.encode(errors='replace'))} bytes; at most {max_bytes} are accepted")
            return default
        return value

    def choice(self, field: str, accepted: Iterable[str]) -> str:
        value, accepted = self.take(field), tuple(accepted)
        if isinstance(value, str) and value in accepted:
            return value
        found = f"is {shown(value)}" if field in self else "is missing"
        self.complain(field, f"{found}; expected one of {', '.join(accepted)}")
        return ""

    def flag(self, field: str, *, default: bool) -> bool:
        value = self.take(field, default)
        if not isinstance(value, bool):
            self.complain(field, f"is {shown(value)}; expected true or false")
            return default
        return value

    def whole(self, field: str, default: int, *, maximum: int) -> int:
        value = self.take(field, default)
        if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= maximum:
            self.complain(field, f"is {shown(value)}; expected a whole number from 1 to {maximum}")
            return default
        return value

    def count(self, field: str, *, maximum: int) -> int:
        value = self.take(field)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= maximum:
            found = f"is {shown(value)}" if field in self else "is missing"
            self.complain(field, f"{found}; expected a whole number from 0 to {maximum}")
            return 0
        return value

    def digest(self, field: str) -> str:
        value = self.take(field, "")
        if not isinstance(value, str) or not DIGEST.fullmatch(value):
            found = f"is {shown(value)}" if field in self else "is missing"
            self.complain(field, f"{found}; expected a SHA-256 as 64 lower-case hexadecimal digits")
            return ""
        return value

    def dtype(self, field: str = "dtype") -> str:
        return self.choice(field, DTYPES)

    def sizes(self, field: str, *, most: int = MAX_DIMENSIONS, least: int = 0, maximum: int = 2**40) -> tuple[int, ...]:
        """Return a list of sizes, each at least 1."""
        value = self.take(field)
        if isinstance(value, list) and least <= len(value) <= most and all(_is_size(item, maximum) for item in value):
            return tuple(value)
        found = f"is {shown(value)}" if field in self else "is missing"
        self.complain(field, f"{found}; expected a list of {least} to {most} whole numbers from 1 to {maximum}")
        return ()

    def items(self, field: str, *, maximum: int) -> list[Json]:
        value = self.take(field, [])
        if not isinstance(value, list):
            self.complain(field, f"is {shown(value)}; expected a list")
            return []
        if len(value) > maximum:
            self.complain(field, f"has {len(value)} items; at most {maximum} are accepted")
            return []
        return value

    def named(self, field: str, read: Callable[["FieldReader"], Item | None], *, maximum: int) -> dict[str, Item]:
        """Return the objects of a field by their names."""
        table = FieldReader(self.take(field, {}), self._place_of(field), self._complaints)
        names = list(table.keys())
        if len(names) > maximum:
            self.complain(field, f"has {len(names)} entries; at most {maximum} are accepted")
            return {}
        found = {}
        for name in names:
            if not NAME.fullmatch(name):
                self.complain(field, f"{shown(name)} is no name; {NAME_RULE}")
                continue
            reader = self.nested(table.take(name), f"{field}.{name}")
            item = read(reader)
            reader.close()
            if item is not None:
                found[name] = item
        return found

    def nested(self, value: Json, place: str) -> "FieldReader":
        return FieldReader(value, self._place_of(place), self._complaints)

    def _place_of(self, place: str) -> str:
        return f"{self.place}.{place}" if self.place else place


def _is_size(value: Json, maximum: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 1 <= value <= maximum
