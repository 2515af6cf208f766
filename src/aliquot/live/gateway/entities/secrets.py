"""Endpoints for secrets: create, list, delete. No response has a value."""

from msgspec import Struct

from aliquot.core.units import KIB
from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.catalogue.secrets import MAX_SECRET_BYTES, Secret, SecretRegistry, users_of
from aliquot.live.gateway.entities.common import PAGE
from aliquot.live.gateway.http.names import check_name
from aliquot.live.gateway.http.query import flag, page_of
from aliquot.live.gateway.http.refusal import EXISTS, Refusal
from aliquot.live.gateway.http.routing import Endpoint, Query, Request, Response, json_response, read_json

_ALL = "/api/v1/namespaces/{namespace}/secrets"
_ONE = _ALL + "/{secret}"
_ESCAPE_FACTOR = 6  # JSON may write a character as \\uXXXX


class SecretPut(Struct, forbid_unknown_fields=True):
    """The values of a secret, by the names of their environment variables."""

    variables: dict[str, str]


class SecretItem(Struct):
    """A secret without its values. Times are in milliseconds since the epoch."""

    namespace: str
    name: str
    variables: tuple[str, ...]
    functions: list[str]  # those that name it
    created: int
    updated: int


class SecretCount(Struct):
    secrets: int


class SecretEndpoints:
    """Handles requests for secrets."""

    def __init__(self, secrets: SecretRegistry, catalogue: Catalogue) -> None:
        self._secrets = secrets
        self._catalogue = catalogue

    def endpoints(self) -> list[Endpoint]:
        one = {200: SecretItem}
        overwrite = Query("overwrite", bool, "replace the secret if it exists")
        return [
            Endpoint("GET", _ALL, self.list, "List secrets without their values",
                     {200: list[SecretItem] | SecretCount}, query=PAGE),
            Endpoint("PUT", _ONE, self.put, "Create a secret; functions that name it start anew", one, body=SecretPut,
                     query=(overwrite,), max_bytes=_ESCAPE_FACTOR * MAX_SECRET_BYTES + KIB,
                     statuses=(408, 409, 413, 415, 429)),
            Endpoint("GET", _ONE, self.get, "Read a secret without its values", one, statuses=(404,)),
            Endpoint("DELETE", _ONE, self.delete, "Delete a secret that no function names", one, statuses=(404, 409)),
        ]  # fmt: skip

    async def list(self, request: Request) -> Response:
        page = page_of(request.fields, "secrets")
        found = self._secrets.all(request.namespace)
        if page.count:
            return json_response(SecretCount(max(0, len(found) - page.skip)))
        return json_response([self._item(secret) for secret in found[page.skip : page.skip + page.limit]])

    async def get(self, request: Request) -> Response:
        return json_response(self._item(self._secrets.find(request.namespace, _name(request))))

    async def put(self, request: Request) -> Response:
        name, namespace = _name(request), request.namespace
        overwrite = flag(request.fields, "overwrite")
        put: SecretPut = read_json(request.body or b"{}", SecretPut)
        async with self._catalogue.writing(namespace):
            if not overwrite and any(secret.name == name for secret in self._secrets.all(namespace)):
                raise Refusal(409, EXISTS)
            secret = await self._secrets.put(namespace, name, put.variables)
            for action in users_of(self._catalogue, namespace, name):
                await self._catalogue.put(action)  # a new revision, whose sandboxes get the new values
        return json_response(self._item(secret))

    async def delete(self, request: Request) -> Response:
        name, namespace = _name(request), request.namespace
        async with self._catalogue.writing(namespace):
            secret = self._secrets.find(namespace, name)
            await self._secrets.delete(secret, users_of(self._catalogue, namespace, name))
        return json_response(self._item(secret))

    def _item(self, secret: Secret) -> SecretItem:
        functions = [action.name for action in users_of(self._catalogue, secret.namespace, secret.name)]
        return SecretItem(secret.namespace, secret.name, secret.variables, functions, secret.created, secret.updated)


def _name(request: Request) -> str:
    return check_name(request.names["secret"])
