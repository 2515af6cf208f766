"""API documents as they are stored and shown: Swagger 2.0 with the action of each operation. Pure.

A document has only fields that the gateway understands. Its only secrets are those that secured web actions require.
"""

import re
from typing import Any

from aliquot.live.gateway.apis.checks import ApiError, check_base_path, check_path
from aliquot.live.gateway.web.responses import RENDERERS
from aliquot.live.gateway.web.target import DEFAULT_PACKAGE
from aliquot.live.store.records import FullName

VERBS = ("get", "put", "post", "delete", "patch", "head", "options")
SECRET_HEADER = "message.headers.X-Require-Whisk-Auth"  # noqa: S105 - the header's name
CONFIGURATION = "x-ibm-configuration"
CASES = "operation-switch"
MAX_OPERATIONS = 1000  # in all APIs of a namespace, because every change rebuilds the route table

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+|[^\W\da-zA-Z_]+")  # of a name in any case

Document = dict[str, Any]


def base_document(base_path: str, title: str | None = None) -> Document:
    return {
        "swagger": "2.0",
        "info": {"title": title or base_path, "version": "1.0.0"},
        "basePath": check_base_path(base_path),
        "paths": {},
        CONFIGURATION: {"assembly": {"execute": [{CASES: {"case": []}}]}, "cors": {"enabled": True}},
    }


class ApiOperation:
    """One verb of one path, with its action."""

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


def put_operation(document: Document, operation: ApiOperation, base: str, described: dict[str, Any]) -> None:
    """Add the operation to the document, or replace the one with the same path and verb."""
    drop_operation(document, operation.path, operation.verb)
    item = document["paths"].setdefault(operation.path, {})
    cases = _cases(document)
    identity = str(described.get("operationId") or _make_operation_id(operation, cases))
    if len(cases) >= MAX_OPERATIONS:
        raise ApiError(f"the APIs of a namespace have at most {MAX_OPERATIONS} operations.")
    if any(identity in case["operations"] for case in cases):
        raise ApiError(f"the operationId '{identity}' is used twice.")
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


def _make_operation_id(operation: ApiOperation, cases: list[Document]) -> str:
    """Return an id such as `getBooksId` for `get /books/{id}`, with a number if another operation has it."""
    words = _WORD.findall(operation.path)
    identity = operation.verb + "".join(word.capitalize() for word in words)
    taken = {each for case in cases for each in case["operations"]}
    others = (f"{identity}{number}" for number in range(2, len(taken) + 3))
    return next(each for each in (identity, *others) if each not in taken)


def drop_operation(document: Document, path: str, verb: str | None = None) -> bool:
    """Remove an operation, or the whole path if `verb` is None. Return whether it existed."""
    item = document["paths"].get(path, {})
    verbs = [verb.lower()] if verb else [each for each in VERBS if each in item]
    found = [item.pop(each) for each in verbs if each in item]
    if not found:
        return False
    removed = {operation["operationId"] for operation in found}
    cases = _cases(document)
    cases[:] = [case for case in cases if removed.isdisjoint(case["operations"])]
    if not any(each in item for each in VERBS):
        document["paths"].pop(path, None)
    return True


def count_operations(document: Document) -> int:
    return len(_cases(document))


def operations_of(document: Document) -> list[ApiOperation]:
    secrets = {
        case["operations"][0]: step["set-variable"]["actions"][0]["value"]
        for case in _cases(document)
        for step in case["execute"]
        if "set-variable" in step
    }
    return [
        ApiOperation(verb, path, action_of(item[verb]), extension_of(item[verb]["x-openwhisk"]["url"]),
                  secrets.get(item[verb]["operationId"]))
        for path, item in document["paths"].items()
        for verb in VERBS
        if verb in item
    ]  # fmt: skip


def action_of(operation: Document) -> FullName:
    target = operation["x-openwhisk"]
    package, leaf = target["package"], target["action"]
    return FullName(target["namespace"], f"{package}/{leaf}" if package else leaf)


def extension_of(url: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return the extension at the end of a web action's URL, or `.json` if it has none."""
    return next((each for each in RENDERERS if str(url).endswith(each)), ".json")


def _cases(document: Document) -> list[Document]:
    found: list[Document] = document[CONFIGURATION]["assembly"]["execute"][0][CASES]["case"]
    return found
