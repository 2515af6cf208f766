"""The route table of a namespace's APIs: from a path to its operations and path parameters. Pure."""

from msgspec import Struct

from aliquot.live.gateway.apis.documents import CONFIGURATION, ApiOperation, Document, operations_of

Segments = tuple[str, ...]


class ApiPath(Struct):
    """One path of an API."""

    segments: Segments  # the whole path, with parameters in braces
    base: int  # number of segments of the API's base path
    cors: bool
    operations: dict[str, ApiOperation]  # by verb in capitals

    def names(self, segments: Segments) -> dict[str, str] | None:
        """Return the values of the path's parameters, or None if the segments do not match."""
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
    """Finds the path that matches a request.

    If two APIs have the same path, the one with the longer base path wins. Literal segments win over parameters.
    """

    def __init__(self, documents: list[Document]) -> None:
        paths: dict[Segments, ApiPath] = {}
        for document in documents:
            base = segments_of(document["basePath"])
            cors = document[CONFIGURATION]["cors"]["enabled"]
            for operation in operations_of(document):
                segments = (*base, *segments_of(operation.path))
                path = paths.get(segments)
                if path is None or path.base < len(base):
                    path = paths[segments] = ApiPath(segments, len(base), cors, {})
                if path.base == len(base):
                    path.operations[operation.verb.upper()] = operation
        self._plain = {segments: path for segments, path in paths.items() if not _has_parameters(segments)}
        self._patterns: dict[int, list[ApiPath]] = {}
        for path in sorted(paths.values(), key=lambda one: (_shape(one.segments), one.segments)):
            if _has_parameters(path.segments):
                self._patterns.setdefault(len(path.segments), []).append(path)

    def find(self, segments: Segments) -> tuple[ApiPath, dict[str, str]] | None:
        path = self._plain.get(segments)
        if path is not None:
            return path, {}
        for path in self._patterns.get(len(segments), ()):
            names = path.names(segments)
            if names is not None:
                return path, names
        return None


def segments_of(path: str) -> Segments:
    """Split a path. A trailing slash makes no difference."""
    path = path.strip("/")
    return tuple(path.split("/")) if path else ()


def _has_parameters(segments: Segments) -> bool:
    return any(segment.startswith("{") for segment in segments)


def _shape(segments: Segments) -> tuple[bool, ...]:
    return tuple(segment.startswith("{") for segment in segments)
