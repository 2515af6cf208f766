"""A gateway before a fake platform, and a client that has the key."""

from contextlib import asynccontextmanager

import httpx

from aliquot.live.catalogue import Catalogue
from aliquot.live.gateway.app import make_app
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.testing.platform import FakePlatform
from aliquot.testing.store import MemoryStore

OPERATOR = "operator-token"
PUT = {"exec": {"kind": "python:3.11", "code": "def main(args): return args"}}


class Client(httpx.AsyncClient):
    """With the parts behind the gateway at hand."""

    platform: FakePlatform
    store: MemoryStore
    catalogue: Catalogue
    key: str

    def auth_of(self, key):
        user, _, secret = key.partition(":")
        return httpx.BasicAuth(user, secret)


@asynccontextmanager
async def gateway(store=None, **settings):
    """The namespace `guest` with an action `echo`; settings as keywords."""
    store = store or MemoryStore()
    platform = FakePlatform(store)
    catalogue = Catalogue(store, platform)
    await catalogue.load()
    key = await catalogue.create_namespace("guest")
    app = make_app(platform, catalogue, store, GatewaySettings(**settings), OPERATOR)
    user, _, secret = key.partition(":")
    transport = httpx.ASGITransport(app)
    async with Client(transport=transport, base_url="http://gateway", auth=(user, secret)) as client:
        client.platform, client.store, client.catalogue, client.key = platform, store, catalogue, key
        assert (await client.put("/api/v1/namespaces/_/actions/echo", json=PUT)).status_code == 200
        yield client
        app.close()
