"""Convert a whole Swagger document from a client into the document that is stored. Pure.

Requirements that the gateway does not support (keys, OAuth, rate limits) are refused, not ignored.
"""

import re
from typing import Any

from aliquot.live.gateway.apis.checks import ApiError, check_parameters, check_paths, full_name
from aliquot.live.gateway.apis.documents import (
    CASES,
    CONFIGURATION,
    SECRET_HEADER,
    VERBS,
    ApiOperation,
    Document,
    base_document,
    extension_of,
    put_operation,
)
from aliquot.live.gateway.web.target import DEFAULT_PACKAGE, split_extension
from aliquot.live.store.records import FullName

_MAX_URL_LENGTH = 2048
_UNSUPPORTED_FIELDS = ("securityDefinitions", "security", "x-ibm-rate-limit", "x-gateway-rate-limit")
_WEB_URL = re.compile(r"(?:\w+://[^/?#]+)?(?:/[^?#]*)?/api/v\d/web/([^/?#]+)/([^/?#]+)/([^/?#$]+).*")


def from_swagger(swagger: Any, caller: str, base: str) -> Document:  # noqa: ANN401 - any JSON value
    """Return the document to store for a client's Swagger document. Raises `ApiError`."""
    _check(swagger)
    made = base_document(swagger["basePath"])
    left = {key: value for key, value in swagger.items() if key not in {"paths", "x-gateway-configuration", *made}}
    document = {**made, **left, "info": _object(swagger["info"], "info")}
    given = swagger.get("x-gateway-configuration") or swagger.get(CONFIGURATION) or {}
    cors = _object(given, CONFIGURATION).get("cors")
    document[CONFIGURATION]["cors"]["enabled"] = not (isinstance(cors, dict) and cors.get("enabled") is False)
    secrets, urls = _steps(given)
    check_paths(_object(swagger["paths"], "paths"))
    for path, item in _object(swagger["paths"], "paths").items():
        shared = {key: value for key, value in _object(item, path).items() if key.lower() not in VERBS}
        for verb, described in item.items():
            if verb in shared:
                continue
            operation = _object(described, f"{verb} {path}")
            if operation.get("security"):
                raise ApiError(f"{verb} {path}: security: this gateway would not hold callers to it.")
            check_parameters(path, shared, operation)
            action, extension = _target(operation, urls, caller)
            secret = secrets.get(str(operation.get("operationId")))
            put_operation(document, ApiOperation(verb, path, action, extension, secret), base, operation)
            document["paths"][path] |= shared
    if not document["paths"]:
        raise ApiError("paths: there is no operation in it.")
    return document


def _check(swagger: Any) -> None:  # noqa: ANN401 - any JSON value
    for field in ("basePath", "paths", "info"):
        if not (isinstance(swagger, dict) and swagger.get(field)):
            raise ApiError(f"swagger is missing the {field} field.")
    for field in _UNSUPPORTED_FIELDS:
        if swagger.get(field):
            raise ApiError(f"{field}: this gateway would not hold callers to it; secure the web action instead.")
    if not isinstance(swagger["basePath"], str):
        raise ApiError("basePath: it takes a string.")


def as_header(secret: Any) -> str:  # noqa: ANN401 - any JSON value
    return str(secret).lower() if isinstance(secret, bool) else str(secret)


def _target(operation: Document, urls: dict[str, str], caller: str) -> tuple[FullName, str]:
    """Return the operation's action and extension, from the action's names or from the URL of the web action."""
    named = operation.get("x-openwhisk") or {}
    named = named if isinstance(named, dict) else {}
    older = operation.get("x-ibm-op-ext")
    url = named.get("url") or urls.get(str(operation.get("operationId")))
    url = url or (older.get("backendUrl") if isinstance(older, dict) else None)
    found = _WEB_URL.fullmatch(url) if isinstance(url, str) and len(url) <= _MAX_URL_LENGTH else None
    namespace, package, leaf = found.groups() if found else ("_", DEFAULT_PACKAGE, "")
    if named.get("action"):
        name = _joined(named.get("package"), named["action"])
        if found and "/" not in str(named["action"]) and name != _joined(package, split_extension(leaf)[0]):
            raise ApiError(f"x-openwhisk names the action '{name}', but its url is '{url}'.")
        namespace = named.get("namespace") or namespace
    elif found:
        name = _joined(package, split_extension(leaf)[0])
    else:
        raise ApiError(f"operation '{operation.get('operationId', '')}' names no action (x-openwhisk).")
    return full_name(namespace, name, caller), extension_of(leaf)


def _joined(package: Any, name: Any) -> str:  # noqa: ANN401 - any JSON value
    return str(name) if package in (None, "", DEFAULT_PACKAGE) or "/" in str(name) else f"{package}/{name}"


def _steps(configuration: Document) -> tuple[dict[str, str], dict[str, str]]:
    """Return the secrets and the web actions' URLs, each by operation id."""
    secrets: dict[str, str] = {}
    urls: dict[str, str] = {}
    for case in _given_cases(configuration):
        secret = url = None
        for step in _objects(case.get("execute")):
            invoke, variables = step.get("invoke"), step.get("set-variable")
            url = invoke.get("target-url", url) if isinstance(invoke, dict) else url
            for action in _objects(variables.get("actions")) if isinstance(variables, dict) else ():
                if str(action.get("set")).lower() == SECRET_HEADER.lower():
                    secret = action.get("value")
        for operation in _list(case.get("operations")):
            if secret is not None:
                secrets[str(operation)] = as_header(secret)
            urls[str(operation)] = str(url)
    return secrets, urls


def _given_cases(configuration: Document) -> list[Document]:
    assembly = configuration.get("assembly")
    found: list[Document] = []
    for step in _objects(assembly.get("execute")) if isinstance(assembly, dict) else ():
        switch = step.get(CASES)
        found += _objects(switch.get("case")) if isinstance(switch, dict) else []
    return found


def _objects(value: Any) -> list[Document]:  # noqa: ANN401 - any JSON value
    return [each for each in _list(value) if isinstance(each, dict)]


def _list(value: Any) -> list[Any]:  # noqa: ANN401 - any JSON value
    return value if isinstance(value, list) else []


def _object(value: Any, field: str) -> Document:  # noqa: ANN401 - any JSON value
    if not isinstance(value, dict):
        raise ApiError(f"{field}: it takes a JSON object.")
    return value
