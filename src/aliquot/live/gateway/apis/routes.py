"""A namespace's API documents as one table of routes: a path to its operations and what its parts are named. Pure."""

from msgspec import Struct

from aliquot.live.gateway.apis.documents import CONFIGURATION, ApiOperation, Document, operations_of

Segments = tuple[str, ...]


class ApiPath(Struct):
    """One path of an API."""

    segments: Segments  # of the whole path; a parameter in braces
    base: int  # how many of them are the API's base path
    cors: bool
    operations: dict[str, ApiOperation]  # by verb, in capitals

    def names(self, segments: Segments) -> dict[str, str] | None:
        """What the parameters stand for; None: that is another path."""
        found: dict[str, str] = {}
        for mine, given in zip(self.segments, segments, strict=True):
            if mine.startswith("{"):
                if not given:
                    return None
                found[mine[1:-1]] = given
            elif mine != given:
                return None
        return found


class RouteTable:
    """Where two APIs claim a path, the one with the longer base path has it; words come before parameters."""

    def __init__(self, documents: list[Document]) -> None:
        places: dict[Segments, ApiPath] = {}
        for document in documents:
            base = segments_of(document["basePath"])
            cors = document[CONFIGURATION]["cors"]["enabled"]
            for operation in operations_of(document):
                segments = (*base, *segments_of(operation.path))
                place = places.get(segments)
                if place is None or place.base < len(base):
                    place = places[segments] = ApiPath(segments, len(base), cors, {})
                if place.base == len(base):
                    place.operations[operation.verb.upper()] = operation
        self._plain = {segments: place for segments, place in places.items() if not _parameters(segments)}
        self._patterns: dict[int, list[ApiPath]] = {}
        for place in sorted(places.values(), key=lambda one: (_shape(one.segments), one.segments)):
            if _parameters(place.segments):
                self._patterns.setdefault(len(place.segments), []).append(place)

    def find(self, segments: Segments) -> tuple[ApiPath, dict[str, str]] | None:
        place = self._plain.get(segments)
        if place is not None:
            return place, {}
        for place in self._patterns.get(len(segments), ()):
            names = place.names(segments)
            if names is not None:
                return place, names
        return None


def segments_of(path: str) -> Segments:
    """A slash at the end does not make another path."""
    path = path.strip("/")
    return tuple(path.split("/")) if path else ()


def _parameters(segments: Segments) -> bool:
    return any(segment.startswith("{") for segment in segments)


def _shape(segments: Segments) -> tuple[bool, ...]:
    return tuple(segment.startswith("{") for segment in segments)
