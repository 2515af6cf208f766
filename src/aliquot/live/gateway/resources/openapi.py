"""Serve `/openapi.json` and `/docs`, built from the table of endpoints and the types of their bodies."""

import re
from functools import cached_property
from html import escape
from http import HTTPStatus
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import fields

from aliquot.live.catalogue.names import NAME_PATTERN
from aliquot.live.datasets.registry import DATASET_NAME as DATASET
from aliquot.live.gateway.entities import wire
from aliquot.live.gateway.http.events import TYPE
from aliquot.live.gateway.http.routing import (
    Endpoint,
    EndpointAccess,
    Request,
    Response,
    handled_elsewhere,
    json_response,
)
from aliquot.version import __version__

_PATH_PARAMETERS = {
    "id": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
    "namespace": {"type": "string", "pattern": f"^({NAME_PATTERN})$", "description": "`_` stands for the caller's own"},
    "uuid": {"type": "string"},
    "dataset": {"type": "string", "pattern": f"^{DATASET}$"},
    "sha256": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
    "key": {
        "type": "string",
        "pattern": "^[A-Za-z0-9_][A-Za-z0-9_.-]*$",
        "description": "may have several parts with / between",
    },
}
_NAME_PARAMETER = {"type": "string", "pattern": f"^({NAME_PATTERN})$"}
_REFUSALS = {
    EndpointAccess.ANYONE: (405,),
    EndpointAccess.NAMESPACE: (400, 401, 403, 405, 429, 503),
    EndpointAccess.PUBLISHED: (400, 401, 403, 405, 429, 503),
    EndpointAccess.OBSERVER: (400, 401, 403, 405, 429, 503),
    EndpointAccess.OPERATOR: (400, 401, 405, 429, 503),
}
_SECURITY: dict[EndpointAccess, list[dict[str, list[str]]]] = {
    EndpointAccess.ANYONE: [],
    EndpointAccess.NAMESPACE: [{"key": []}],
    EndpointAccess.PUBLISHED: [{"key": []}],
    EndpointAccess.OBSERVER: [{"key": []}, {"operator": []}],
    EndpointAccess.OPERATOR: [{"operator": []}],
}
_ACTIVATION = "/namespaces/{namespace}/activations/{id}"
_ACTIVATION_HEADER = "x-openwhisk-activation-id"
_HTML = (b"content-type", b"text/html; charset=utf-8")


class OpenApiEndpoints:
    """Handles requests for the description of all endpoints, including its own two."""

    def __init__(self, others: list[Endpoint]) -> None:
        self._others = others

    def endpoints(self) -> list[Endpoint]:
        anyone = EndpointAccess.ANYONE
        return [
            Endpoint("GET", "/openapi.json", self.page, "This API as OpenAPI", {200: dict}, anyone),
            Endpoint("GET", "/docs", self.docs, "This API as a page to read", {200: None}, anyone),
        ]

    @cached_property
    def _document(self) -> dict[str, Any]:
        return describe([*self._others, *self.endpoints(), *web_endpoints()])

    async def page(self, _: Request) -> Response:
        return json_response(self._document)

    async def docs(self, _: Request) -> Response:
        return Response(200, _render(self._document).encode(), (_HTML,))


def web_endpoints() -> list[Endpoint]:
    """Describe web actions and API routes, whose actions choose the response. The table does not have them."""
    summaries = {
        "/api/v1/web/{namespace}/{package}/{name}": (
            "Call a web action; a name may end in .http, .json, .html, .svg or .text, and a path may follow"
        ),
        "/api/{namespace}/{path}": "Call an API route of the namespace",
    }
    return [
        Endpoint(
            method,
            path,
            handled_elsewhere,
            summary,
            {200: None, 202: None, 204: None},
            EndpointAccess.ANYONE,
            statuses=(400, 401, 404, 408, 413, 429, 503),
            any_status=True,
        )
        for path, summary in summaries.items()
        for method in ("GET", "POST", "PUT", "PATCH", "DELETE")
    ]


def describe(endpoints: list[Endpoint]) -> dict[str, Any]:
    """Return the OpenAPI document for these endpoints."""
    types = [wire.ErrorView]
    for endpoint in endpoints:
        types += [kind for kind in (endpoint.body, *endpoint.responses.values()) if kind is not None]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    by_type = dict(zip(map(repr, types), schemas, strict=True))
    links = _activation_links(endpoints)
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        operation = paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, by_type)
        if endpoint.method == "POST" and wire.ActivationId in endpoint.responses.values():
            for status in endpoint.responses.keys() - {HTTPStatus.NO_CONTENT}:  # a trigger without active rules
                operation["responses"][str(status)] |= links
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Aliquot",
            "version": __version__,
            "description": "A serverless platform with the API of Apache OpenWhisk.",
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {
                "key": {"type": "http", "scheme": "basic", "description": "uuid and secret of a namespace's key"},
                "operator": {"type": "http", "scheme": "bearer"},
            },
        },
    }


def _operation_id(endpoint: Endpoint) -> str:
    return re.sub(r"\W+", "_", f"{endpoint.method.lower()}{endpoint.path}").rstrip("_")


def _activation_links(endpoints: list[Endpoint]) -> dict[str, Any]:
    """Return the header and links by which a response points to the activation that was started."""
    parameters = {"namespace": "_", "id": f"$response.header.{_ACTIVATION_HEADER}"}
    found = [endpoint for endpoint in endpoints if _ACTIVATION in endpoint.path]
    return {
        "headers": {_ACTIVATION_HEADER: {"schema": _PATH_PARAMETERS["id"]}},
        "links": {name: {"operationId": name, "parameters": parameters} for name in map(_operation_id, found)},
    }


def _operation(endpoint: Endpoint, by_type: dict[str, Any]) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "operationId": _operation_id(endpoint),
        "security": _SECURITY[endpoint.access],
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": _PATH_PARAMETERS.get(name, _NAME_PARAMETER)}
            for name in re.findall(r"{(\w+)}", endpoint.path)
        ],
    }
    for query in endpoint.query:
        schema = msgspec.json.schema(query.kind)
        parameter = {"name": query.name, "in": "query", "description": query.text, "schema": schema}
        operation["parameters"].append(parameter)
    if endpoint.body is not None:
        content = {"application/json": {"schema": by_type[repr(endpoint.body)]}}
        operation["requestBody"] = {
            "required": _has_required(endpoint.body),
            "content": content | {key: {} for key in endpoint.also_takes},
        }
    operation["responses"] = _responses(endpoint, by_type)
    return operation


def _responses(endpoint: Endpoint, by_type: dict[str, Any]) -> dict[str, Any]:
    responses: dict[str, Any] = {}
    refusals = dict.fromkeys((*_REFUSALS[endpoint.access], *endpoint.statuses), wire.ErrorView)
    for status, kind in sorted({**refusals, **endpoint.responses}.items()):
        response: dict[str, Any] = {"description": HTTPStatus(status).phrase}
        if kind is not None:
            content = {"application/json": {"schema": by_type[repr(kind)]}}
            also = endpoint.also_takes if status in endpoint.responses else ()
            response["content"] = content | {key: {} for key in also}
            if endpoint.streams and status == HTTPStatus.OK:
                response["content"][TYPE.decode()] = {"schema": {"type": "string"}}
        responses[str(status)] = response
    if endpoint.any_status:
        responses["default"] = {"description": "The action's own response"}
    return responses


def _has_required(kind: Any) -> bool:  # noqa: ANN401 - a type
    """Return whether an empty body would be refused."""
    return isinstance(kind, type) and issubclass(kind, Struct) and any(one.required for one in fields(kind))


def _render(document: dict[str, Any]) -> str:
    rows = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            query = ", ".join(one["name"] for one in operation["parameters"] if one["in"] == "query")
            cells = (method.upper(), path, operation["summary"], query, ", ".join(operation["responses"]))
            rows.append("".join(f"<td>{escape(cell)}</td>" for cell in cells))
    schemas = document["components"]["schemas"]
    types = [
        f"<h3>{escape(name)}</h3><pre>{escape(msgspec.json.format(msgspec.json.encode(schema)).decode())}</pre>"
        for name, schema in schemas.items()
    ]
    style = "body{font:15px sans-serif;margin:2em}td,th{text-align:left;padding:.2em 1em .2em 0}td:nth-child(-n+2)"
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>Aliquot API</title><style>{style}"
        "{font-family:monospace}</style><h1>Aliquot API</h1><p>As OpenAPI: <a href=/openapi.json>openapi.json</a>"
        "<table><tr><th>method<th>path<th>description<th>query<th>responses"
        f"{''.join(f'<tr>{row}' for row in rows)}</table><h2>Bodies</h2>{''.join(types)}</html>"
    )
