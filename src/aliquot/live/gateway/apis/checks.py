"""Check the paths and action names in an API document."""

import re
from typing import Any

from aliquot.live.catalogue.names import is_name
from aliquot.live.gateway.web.arguments import RESERVED
from aliquot.live.gateway.web.target import DEFAULT_PACKAGE
from aliquot.live.store.records import FullName

_MAX_PATH_LENGTH = 512
_MAX_NAMES = 3
_PARAMETER = re.compile(r"\{([^{}/]+)\}")


class ApiError(Exception):
    """The request is wrong. The text is for the client."""


def check_base_path(path: str) -> str:
    if _PARAMETER.search(check_path(path)):
        text = f"The base path '{path}' cannot have parameters. Only the relative path supports path parameters."
        raise ApiError(text)
    return path


def check_path(path: Any) -> str:  # noqa: ANN401 - any JSON value
    if not isinstance(path, str) or not path.startswith("/"):
        raise ApiError(f"'{str(path)[:_MAX_PATH_LENGTH]}' must begin with '/'.")
    if len(path) > _MAX_PATH_LENGTH or not path.isprintable() or set(path) & set("?#\\"):
        raise ApiError(
            f"'{path[:_MAX_PATH_LENGTH]}' cannot be a path: it takes {_MAX_PATH_LENGTH} characters, no ? # or \\."
        )
    for segment in path.strip("/").split("/"):
        name = _PARAMETER.fullmatch(segment)
        if segment in {".", ".."} or (name is None and ("{" in segment or "}" in segment)):
            raise ApiError(f"'{segment}' cannot be a part of a path; a parameter is a whole part, as in /books/{{id}}.")
        if name and name[1] in RESERVED:
            raise ApiError(f"'{name[1]}' is a reserved name.")
    return path


def check_paths(paths: dict[str, Any]) -> None:
    """Raise `ApiError` if two paths match the same requests, or if a path has a verb twice."""
    seen: dict[str, str] = {}
    for path, item in paths.items():
        other = seen.setdefault(_PARAMETER.sub("{}", path.strip("/")), path)
        if other != path:
            raise ApiError(f"the paths '{other}' and '{path}' match the same requests.")
        if isinstance(item, dict) and len({key.lower() for key in item}) < len(item):
            raise ApiError(f"the path '{path}' has a verb twice, in small and in capital letters.")


def check_parameters(path: str, shared: dict[str, Any], operation: dict[str, Any]) -> None:
    """Raise `ApiError` if the parameters that a document describes for a path are not those in the path."""
    described = {
        each["name"]
        for listed in (shared.get("parameters"), operation.get("parameters"))
        for each in (listed if isinstance(listed, list) else [])
        if isinstance(each, dict) and each.get("in") == "path" and isinstance(each.get("name"), str)
    }
    if not described:  # they need not be described
        return
    named = set(_PARAMETER.findall(path))
    for name in sorted(named - described):
        raise ApiError(
            f"The parameter '{name}' defined in path '{path}' does not match any of the parameters defined for the "
            "path in the swagger file."
        )
    for name in sorted(described - named):
        raise ApiError(f"The parameter '{name}' is described, but the path '{path}' does not have it.")


def full_name(namespace: Any, name: Any, caller: str) -> FullName:  # noqa: ANN401 - any JSON value
    """Return the full name of an action. Raises `ApiError` if it cannot be one."""
    parts = str(name).split("/")
    if parts[0] == "" and len(parts) > 2:  # noqa: PLR2004 - /namespace/...
        namespace, parts = parts[1], parts[2:]
    if len(parts) == 2 and parts[0] == DEFAULT_PACKAGE:  # noqa: PLR2004 - package/name
        parts = parts[1:]
    namespace = caller if namespace in ("_", None) else namespace
    if not isinstance(namespace, str) or len(parts) >= _MAX_NAMES or not all(map(is_name, (namespace, *parts))):
        raise ApiError(f"'{name}' cannot be the name of an action.")
    return FullName(namespace, "/".join(parts))
