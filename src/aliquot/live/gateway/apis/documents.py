"""API documents as OpenWhisk's clients write and read them: Swagger 2.0 with the action of each operation. Pure.

A document that is kept was made here, whatever was sent: it has what is understood and nothing secret but the word that
a secured web action asks for. Demands that would not be met (keys, OAuth, rates) are refused, not passed over.
"""

import re
from typing import Any

from aliquot.live.gateway.names import is_name
from aliquot.live.gateway.web.answers import RENDERERS
from aliquot.live.gateway.web.arguments import RESERVED
from aliquot.live.gateway.web.target import DEFAULT_PACKAGE, split_extension
from aliquot.live.records import FullName

VERBS = ("get", "put", "post", "delete", "patch", "head", "options")
SECRET_HEADER = "message.headers.X-Require-Whisk-Auth"  # noqa: S105 - the header's name
CONFIGURATION = "x-ibm-configuration"
MOST_OPERATIONS = 1000  # of all APIs of a namespace: their table is made anew with every change
_LONGEST_PATH = 512
_LONGEST_URL = 2048
_MOST_NAMES = 3
_UNKEPT = ("securityDefinitions", "security", "x-ibm-rate-limit", "x-gateway-rate-limit")
_WEB_URL = re.compile(r"(?:\w+://[^/?#]+)?(?:/[^?#]*)?/api/v\d/web/([^/?#]+)/([^/?#]+)/([^/?#$]+).*")
_PARAMETER = re.compile(r"\{([^{}/]+)\}")
_CASES = "operation-switch"

Document = dict[str, Any]


class ApiError(Exception):
    """What is wrong with what was asked; the text is for whoever asked."""


def base_document(base_path: str, title: str | None = None) -> Document:
    return {
        "swagger": "2.0",
        "info": {"title": title or base_path, "version": "1.0.0"},
        "basePath": check_base_path(base_path),
        "paths": {},
        CONFIGURATION: {"assembly": {"execute": [{_CASES: {"case": []}}]}, "cors": {"enabled": True}},
    }


class Operation:
    """One verb of one path, and the action it leads to."""

    def __init__(self, verb: str, path: str, action: FullName, extension: str, secret: str | None) -> None:
        self.verb = verb.lower()
        if self.verb not in VERBS:
            raise ApiError(f"'{verb}' is not a verb; it takes one of {', '.join(VERBS)}.")
        self.path = check_path(path)
        self.action = action
        if extension not in RENDERERS:
            kinds = ", ".join(name[1:] for name in RENDERERS)
            raise ApiError(f"'{extension[1:]}' is not a response type; it takes one of {kinds}.")
        self.extension = extension
        self.secret = secret

    def url(self, base: str) -> str:
        package = self.action.package or DEFAULT_PACKAGE
        return f"{base}/api/v1/web/{self.action.namespace}/{package}/{self.action.leaf}{self.extension}"


def put_operation(document: Document, operation: Operation, base: str, described: dict[str, Any]) -> None:
    """Into the document, in place of the one that is there for this path and verb."""
    drop_operation(document, operation.path, operation.verb)
    item = document["paths"].setdefault(operation.path, {})
    identity = str(described.get("operationId") or f"{operation.verb}_{operation.path}")
    cases = _cases(document)
    if len(cases) >= MOST_OPERATIONS:
        raise ApiError(f"the APIs of a namespace have at most {MOST_OPERATIONS} operations.")
    if any(identity in case["operations"] for case in cases):
        raise ApiError(f"the operationId '{identity}' is there twice.")
    url = operation.url(base)
    item[operation.verb] = {
        "responses": {"default": {"description": "Default response"}},
        **{key: value for key, value in described.items() if key not in {"x-ibm-op-ext", "security"}},
        "operationId": identity,
        "x-openwhisk": {
            "namespace": operation.action.namespace,
            "package": operation.action.package,
            "action": operation.action.leaf,
            "url": url,
        },
    }
    execute: list[Document] = [{"invoke": {"target-url": f"{url}$(request.path)", "verb": "keep"}}]
    if operation.secret is not None:
        execute.append({"set-variable": {"actions": [{"set": SECRET_HEADER, "value": operation.secret}]}})
    cases.append({"operations": [identity], "execute": execute})


def drop_operation(document: Document, path: str, verb: str | None = None) -> bool:
    """Whether it was there; without a verb, the whole path."""
    item = document["paths"].get(path, {})
    verbs = [verb.lower()] if verb else [each for each in VERBS if each in item]
    found = [item.pop(each) for each in verbs if each in item]
    if not found:
        return False
    gone = {operation["operationId"] for operation in found}
    cases = _cases(document)
    cases[:] = [case for case in cases if gone.isdisjoint(case["operations"])]
    if not any(each in item for each in VERBS):
        document["paths"].pop(path, None)
    return True


def count_operations(document: Document) -> int:
    return len(_cases(document))


def operations_of(document: Document) -> list[Operation]:
    """Of a document that was made here."""
    secrets = _secrets(_cases(document))
    found = []
    for path, item in document["paths"].items():
        for verb, described in item.items():
            if verb in VERBS:
                action, extension = _target(described, {}, "")
                found.append(Operation(verb, path, action, extension, secrets.get(described["operationId"])))
    return found


def from_swagger(swagger: Any, caller: str, base: str) -> Document:  # noqa: ANN401 - whatever JSON holds
    """The document that is kept for one that a client sent whole. Raises `ApiError`."""
    for field in ("basePath", "paths", "info"):
        if not (isinstance(swagger, dict) and swagger.get(field)):
            raise ApiError(f"swagger is missing the {field} field.")
    for field in _UNKEPT:
        if swagger.get(field):
            raise ApiError(f"{field}: this gateway would not hold callers to it; secure the web action instead.")
    if not isinstance(swagger["basePath"], str):
        raise ApiError("basePath: it takes a string.")
    made = base_document(swagger["basePath"])
    left = {key: value for key, value in swagger.items() if key not in {"paths", "x-gateway-configuration", *made}}
    document = {**made, **left, "info": _object(swagger["info"], "info")}
    given = swagger.get("x-gateway-configuration") or swagger.get(CONFIGURATION) or {}
    cors = _object(given, CONFIGURATION).get("cors")
    document[CONFIGURATION]["cors"]["enabled"] = not (isinstance(cors, dict) and cors.get("enabled") is False)
    cases = _given_cases(given)
    secrets, urls = _secrets(cases), _urls(cases)
    for path, item in _object(swagger["paths"], "paths").items():
        shared = {key: value for key, value in _object(item, path).items() if key.lower() not in VERBS}
        for verb, described in item.items():
            if verb in shared:
                continue
            operation = _object(described, f"{verb} {path}")
            if operation.get("security"):
                raise ApiError(f"{verb} {path}: security: this gateway would not hold callers to it.")
            action, extension = _target(operation, urls, caller)
            secret = secrets.get(str(operation.get("operationId")))
            put_operation(document, Operation(verb, path, action, extension, secret), base, operation)
            document["paths"][path] |= shared
    return document


def _target(operation: Document, urls: dict[str, str], caller: str) -> tuple[FullName, str]:
    """The action and the extension, by what is said of it: its names, or the address of the web action."""
    said = operation.get("x-openwhisk") or {}
    said = said if isinstance(said, dict) else {}
    older = operation.get("x-ibm-op-ext")
    url = said.get("url") or urls.get(str(operation.get("operationId")))
    url = url or (older.get("backendUrl") if isinstance(older, dict) else None)
    found = _WEB_URL.fullmatch(url) if isinstance(url, str) and len(url) <= _LONGEST_URL else None
    namespace, package, leaf = found.groups() if found else ("_", DEFAULT_PACKAGE, "")
    if said.get("action"):
        namespace = said.get("namespace") or namespace
        name = _joined(said.get("package"), said["action"])
    elif found:
        name = _joined(package, split_extension(leaf)[0])
    else:
        raise ApiError(f"operation '{operation.get('operationId', '')}' names no action (x-openwhisk).")
    return full_name(namespace, name, caller), extension_of(leaf)


def extension_of(url: Any) -> str:  # noqa: ANN401 - whatever JSON holds
    """How a web action's result is shown by its address; JSON when that does not say."""
    return next((each for each in RENDERERS if str(url).endswith(each)), ".json")


def full_name(namespace: Any, name: Any, caller: str) -> FullName:  # noqa: ANN401 - whatever JSON holds
    """Raises `ApiError` when it cannot be an action's."""
    parts = str(name).split("/")
    if parts[0] == "" and len(parts) > 2:  # noqa: PLR2004 - /namespace/...
        namespace, parts = parts[1], parts[2:]
    if len(parts) == 2 and parts[0] == DEFAULT_PACKAGE:  # noqa: PLR2004 - package/name
        parts = parts[1:]
    namespace = caller if namespace in ("_", None) else namespace
    if not isinstance(namespace, str) or len(parts) >= _MOST_NAMES or not all(map(is_name, (namespace, *parts))):
        raise ApiError(f"'{name}' cannot be the name of an action.")
    return FullName(namespace, "/".join(parts))


def _joined(package: Any, name: Any) -> str:  # noqa: ANN401 - whatever JSON holds
    return str(name) if package in (None, "", DEFAULT_PACKAGE) or "/" in str(name) else f"{package}/{name}"


def _cases(document: Document) -> list[Document]:
    found: list[Document] = document[CONFIGURATION]["assembly"]["execute"][0][_CASES]["case"]
    return found


def _given_cases(configuration: Any) -> list[Any]:  # noqa: ANN401 - whatever JSON holds
    """Of a document that somebody else made: only what has the shape of a case."""
    assembly = configuration.get("assembly")
    steps = assembly.get("execute") if isinstance(assembly, dict) else None
    found: list[Any] = []
    for step in _list(steps):
        switch = step.get(_CASES) if isinstance(step, dict) else None
        cases = switch.get("case") if isinstance(switch, dict) else None
        found += [each for each in _list(cases) if isinstance(each, dict)]
    return found


def _list(value: Any) -> list[Any]:  # noqa: ANN401 - whatever JSON holds
    return value if isinstance(value, list) else []


def _steps(cases: list[Any], kind: str) -> list[tuple[str, Document]]:
    """The steps of that kind, each with an operation it is for."""
    return [
        (str(operation), step[kind])
        for case in cases
        for operation in _list(case.get("operations"))
        for step in _list(case.get("execute"))
        if isinstance(step, dict) and isinstance(step.get(kind), dict)
    ]


def _secrets(cases: list[Any]) -> dict[str, str]:
    return {
        operation: said(action["value"])
        for operation, step in _steps(cases, "set-variable")
        for action in _list(step.get("actions"))
        if isinstance(action, dict)
        and str(action.get("set")).lower() == SECRET_HEADER.lower()
        and action.get("value") is not None
    }


def _urls(cases: list[Any]) -> dict[str, str]:
    return {operation: str(step.get("target-url")) for operation, step in _steps(cases, "invoke")}


def said(secret: Any) -> str:  # noqa: ANN401 - whatever JSON holds
    """As a header says it."""
    return str(secret).lower() if isinstance(secret, bool) else str(secret)


def check_base_path(path: str) -> str:
    if _PARAMETER.search(check_path(path)):
        text = f"The base path '{path}' cannot have parameters. Only the relative path supports path parameters."
        raise ApiError(text)
    return path


def check_path(path: Any) -> str:  # noqa: ANN401 - whatever JSON holds
    if not isinstance(path, str) or not path.startswith("/"):
        raise ApiError(f"'{str(path)[:_LONGEST_PATH]}' must begin with '/'.")
    if len(path) > _LONGEST_PATH or not path.isprintable() or set(path) & set("?#\\"):
        raise ApiError(f"'{path[:_LONGEST_PATH]}' cannot be a path: it takes {_LONGEST_PATH} characters, no ? # or \\.")
    for segment in path.strip("/").split("/"):
        name = _PARAMETER.fullmatch(segment)
        if segment in {".", ".."} or (name is None and ("{" in segment or "}" in segment)):
            raise ApiError(f"'{segment}' cannot be a part of a path; a parameter is a whole part, as in /books/{{id}}.")
        if name and name[1] in RESERVED:
            raise ApiError(f"'{name[1]}' is a reserved name.")
    return path


def _object(value: Any, field: str) -> Document:  # noqa: ANN401 - whatever JSON holds
    if not isinstance(value, dict):
        raise ApiError(f"{field}: it takes a JSON object.")
    return value
