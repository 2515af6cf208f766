"""`whisk.system/apimgmt`: createApi, getApi and deleteApi, implemented by the gateway.

They are web actions in OpenWhisk. So a wrong request is an application error, which is a 502 without a code.
"""

import copy
import re
from typing import Any

import msgspec
from msgspec import Raw

from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.catalogue.resolving import resolve_action
from aliquot.live.gateway.apis.checks import ApiError, full_name
from aliquot.live.gateway.apis.documents import (
    MAX_OPERATIONS,
    VERBS,
    ApiOperation,
    Document,
    action_of,
    base_document,
    count_operations,
    drop_operation,
    put_operation,
)
from aliquot.live.gateway.apis.registry import Api, ApiRegistry
from aliquot.live.gateway.apis.swagger import as_header, from_swagger
from aliquot.live.gateway.http.refusal import forbidden
from aliquot.live.gateway.http.responses import JSON
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.gateway.web.arguments import WebRequest, arguments
from aliquot.live.gateway.web.handler import BuiltinAction, BuiltinHandler, IncomingRequest
from aliquot.live.gateway.web.responses import WebResponse
from aliquot.live.store.errors import AccessDeniedError, NotFoundError
from aliquot.live.store.records import FullName

VERSIONS = re.compile(r"v\d+")  # /api/v1 belongs to the platform
_HOST = re.compile(rb"[A-Za-z0-9.-]+(:\d+)?|\[[0-9A-Fa-f:.]+\](:\d+)?")
_FIELDS = ("gatewayBasePath", "gatewayPath", "gatewayMethod", "action")
_ACTION_FIELDS = ("backendMethod", "backendUrl", "namespace", "name")


class ApiManagement:
    """Creates, shows and deletes the APIs of namespaces."""

    def __init__(self, apis: ApiRegistry, catalogue: Catalogue, settings: GatewaySettings) -> None:
        self._apis = apis
        self._catalogue = catalogue
        self._settings = settings

    def builtins(self) -> dict[str, BuiltinAction]:
        return {
            "whisk.system/apimgmt/createApi": BuiltinAction("POST", _with_errors(self.create)),
            "whisk.system/apimgmt/getApi": BuiltinAction("GET", _with_errors(self.get)),
            "whisk.system/apimgmt/deleteApi": BuiltinAction("DELETE", _with_errors(self.delete)),
        }

    async def create(self, http_request: IncomingRequest, caller: str, request: WebRequest) -> WebResponse:
        given = _read(request)
        if VERSIONS.fullmatch(caller):
            raise ApiError(f"the namespace '{caller}' cannot have APIs: /api/{caller} is the platform's own.")
        apidoc = _parsed(given.get("apidoc"), "apidoc")
        base = self._base(http_request)
        try:
            async with self._catalogue.writing(caller):
                document = await self._document(caller, apidoc, given.get("responsetype"), base)
                await self._check(caller, document)
                api = await self._apis.put(caller, document)
        except ApiError as error:
            raise ApiError(f"API creation failure: {error}") from error
        return _json(self._view(api, base)["value"])

    async def get(self, http_request: IncomingRequest, caller: str, request: WebRequest) -> WebResponse:
        given = _read(request)
        wanted = given.get("basepath")
        if wanted:
            found = await self._apis.find(caller, str(wanted))
            apis = [found] if found else []
        else:
            apis = await self._apis.all(caller)
        path, verb = given.get("relpath"), given.get("operation")
        if path or verb:
            apis = [part for api in apis if (part := _part(api, path, verb))]
        skip, limit = _number(given, "skip"), _number(given, "limit")
        apis = apis[skip:][: limit or None]
        return _json({"apis": [self._view(api, self._base(http_request)) for api in apis]})

    async def delete(self, _: IncomingRequest, caller: str, request: WebRequest) -> WebResponse:
        given = _read(request)
        wanted, path, verb = given.get("basepath"), given.get("relpath"), given.get("operation")
        if not wanted:
            raise ApiError("basepath is required.")
        if verb and not path:
            raise ApiError("When specifying an operation, the path is required.")
        try:
            async with self._catalogue.writing(caller):
                verb = str(verb).lower() if verb else None
                await self._delete(caller, str(wanted), str(path) if path else None, verb)
        except ApiError as error:
            raise ApiError(f"API deletion failure: {error}") from error
        return _json({})

    async def _delete(self, caller: str, wanted: str, path: str | None, verb: str | None) -> None:
        api = await self._apis.find(caller, wanted)
        if api is None:
            raise ApiError(f"API '{wanted}' does not exist.")
        if not path:
            await self._apis.delete(api)
            return
        document = copy.deepcopy(api.document)
        if not drop_operation(document, path, verb):
            which = f"path '{path}' with operation '{verb}'" if verb else f"path '{path}'"
            raise ApiError(f"{which} does not exist in the API")
        if document["paths"]:
            await self._apis.put(caller, document)
        else:
            await self._apis.delete(api)

    async def _document(self, caller: str, apidoc: Document, responsetype: Any, base: str) -> Document:  # noqa: ANN401 - JSON
        if apidoc.get("swagger"):
            if apidoc.get("gatewayBasePath"):
                raise ApiError("swagger and gatewayBasePath are mutually exclusive and cannot be specified together.")
            return from_swagger(_parsed(apidoc["swagger"], "swagger"), caller, base)
        for field in _FIELDS:
            if not apidoc.get(field):
                raise ApiError(f"apidoc is missing the {field} field")
        action = apidoc["action"]
        for field in _ACTION_FIELDS:
            if not isinstance(action, dict) or not action.get(field):
                raise ApiError(f"action is missing the {field} field.")
        base_path, title = str(apidoc["gatewayBasePath"]), apidoc.get("apiName")
        fresh = base_document(base_path, str(title) if title else None)
        existing = await self._apis.find(caller, base_path)
        document = copy.deepcopy(existing.document) if existing else fresh
        # A client gives the same namespace in both places if it means its own, whatever name it uses.
        own = action["namespace"] in ("_", apidoc.get("namespace"))
        secret = action.get("secureKey")
        operation = ApiOperation(
            str(apidoc["gatewayMethod"]),
            apidoc["gatewayPath"],
            full_name("_" if own else action["namespace"], action["name"], caller),
            f".{responsetype or 'json'}",
            None if secret is None else as_header(secret),
        )
        parameters = apidoc.get("pathParameters")
        put_operation(document, operation, base, {"parameters": parameters} if parameters else {})
        return document

    async def _check(self, caller: str, document: Document) -> None:
        for item in document["paths"].values():
            for verb in VERBS:
                if verb in item:
                    self._check_entitled(caller, action_of(item[verb]))
        if len(msgspec.json.encode(document)) > self._settings.parameters_bytes:
            raise ApiError(f"the document is larger than allowed: {self._settings.parameters_bytes} bytes.")
        others = [api.document for api in await self._apis.all(caller) if api.base_path != document["basePath"]]
        if sum(map(count_operations, (document, *others))) > MAX_OPERATIONS:
            raise ApiError(f"the APIs of a namespace have at most {MAX_OPERATIONS} operations.")

    def _check_entitled(self, caller: str, name: FullName) -> None:
        """Raise a 403 for another namespace's action that is not published. One's own action need not exist yet."""
        if name.namespace == caller:
            return
        try:
            resolve_action(self._catalogue.entities, caller, name)
        except (NotFoundError, AccessDeniedError) as error:
            raise forbidden(f"{name.namespace}/{name.name}") from error

    def _view(self, api: Api, base: str) -> Document:
        path = api.base_path.rstrip("/")
        value = {
            "namespace": api.namespace,
            "gwApiActivated": True,
            "tenantId": api.namespace,
            "gwApiUrl": f"{base}/api/{api.namespace}{path}",
            "apidoc": api.document,
        }
        return {"id": f"API:{api.namespace}:{api.base_path}", "key": api.base_path, "value": value}

    def _base(self, http_request: IncomingRequest) -> str:
        """Return the URL by which the caller has reached this server. Only the caller sees it."""
        host = http_request.headers.get(b"host", b"")
        return f"{http_request.scheme}://{host.decode()}" if _HOST.fullmatch(host) else self._settings.api_host


def _with_errors(handler: BuiltinHandler) -> BuiltinHandler:
    async def report(http_request: IncomingRequest, caller: str, request: WebRequest) -> WebResponse:
        try:
            return await handler(http_request, caller, request)
        except ApiError as error:
            return _json({"error": str(error)}, 502)

    return report


def _read(request: WebRequest) -> Document:
    given = arguments(request, raw=False, final=frozenset())
    return {key: msgspec.json.decode(value) if isinstance(value, Raw) else value for key, value in given.items()}


def _parsed(value: Any, field: str) -> Document:  # noqa: ANN401 - any JSON value
    """Return a JSON object that is given as such or as text."""
    if not value:
        raise ApiError(f"{field} is required.")
    if isinstance(value, str):
        try:
            value = msgspec.json.decode(value)
        except (msgspec.DecodeError, RecursionError) as error:
            raise ApiError(f"{field} field cannot be parsed. Ensure it is valid JSON.") from error
    if not isinstance(value, dict):
        raise ApiError(f"{field} field should be a JSON object or a JSON string.")
    return value


def _part(api: Api, path: Any, verb: Any) -> Api | None:  # noqa: ANN401 - any JSON value
    """Return the API with the requested paths and operations only, or None if it has none of them."""
    document = copy.deepcopy(api.document)
    for each, item in list(document["paths"].items()):
        for name in [name for name in VERBS if name in item]:
            if (path and each != path) or (verb and name != str(verb).lower()):
                drop_operation(document, each, name)
    return msgspec.structs.replace(api, document=document) if document["paths"] else None


def _number(given: Document, name: str) -> int:
    text = str(given.get(name) or 0)
    if not text.isascii() or not text.isdigit() or len(text) > 9:  # noqa: PLR2004 - no list is that long
        raise ApiError(f"{name}: it takes a number from 0 on, not '{text}'.")
    return int(text)


def _json(value: Document, status: int = 200) -> WebResponse:
    return WebResponse(status, (JSON,), msgspec.json.encode(value))
