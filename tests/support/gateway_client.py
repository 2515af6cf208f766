"""A gateway with a fake platform, and a client with a key."""

import asyncio
import functools
from contextlib import asynccontextmanager

import httpx

from aliquot.live.catalogue.catalogue import Catalogue
from aliquot.live.gateway.app import Gateway
from aliquot.live.gateway.settings import GatewaySettings
from aliquot.live.store.operator_token import OperatorToken
from aliquot.testing.platform import FakePlatform
from aliquot.testing.store import MemoryStore
from aliquot.testing.waiting import wait_on_loop

OPERATOR = "operator-token"
AS_OPERATOR = {"Authorization": f"Bearer {OPERATOR}"}
NS = "/api/v1/namespaces/_"
ACTIONS = f"{NS}/actions"
PACKAGES, TRIGGERS, RULES = f"{NS}/packages", f"{NS}/triggers", f"{NS}/rules"
GONE = (404, "The requested resource does not exist.")
EXISTS = (409, "resource already exists")
ELSEWHERE = (409, "Resource by this name exists but is not in this collection.")
PUT = {"exec": {"kind": "python:3.11", "code": "def main(args): return args"}}


def on_a_loop(test):
    """Run a coroutine function as a test."""

    @functools.wraps(test)
    def run(*args, **kwargs):
        asyncio.run(test(*args, **kwargs))

    return run


class Client(httpx.AsyncClient):
    """An HTTP client that also has the parts behind the gateway as attributes."""

    async def say(self, method, path, **more):
        """Return status and body. Check that an error's code is the request's id, and remove it."""
        answer = await self.request(method, path, **more)
        body = answer.json() if answer.content else None
        if answer.status_code >= 400 and isinstance(body, dict) and "code" in body:
            assert body.pop("code") == answer.headers["x-request-id"]
            assert set(body) == {"error"}
            return answer.status_code, body["error"]
        return answer.status_code, body

    async def until_called(self, count=1):
        """Wait until the platform has this many calls."""
        await wait_on_loop(lambda: self.platform.calls, lambda calls: len(calls) >= count, what=f"{count} calls")

    async def beside(self, name):
        """Create another namespace, and return a client for it."""
        other = Client(
            transport=self._transport, base_url=self.base_url, auth=basic(await self.catalogue.create_namespace(name))
        )
        other.platform, other.store, other.catalogue, other.app = self.platform, self.store, self.catalogue, self.app
        return other


def basic(key):
    user, _, secret = key.partition(":")
    return httpx.BasicAuth(user, secret)


@asynccontextmanager
async def gateway(store=None, action=PUT, **settings):
    """Yield a client for the namespace `guest` with an action `echo`. Keywords are settings."""
    store = store or MemoryStore()
    platform = FakePlatform(store)
    catalogue = Catalogue(store, platform)
    await catalogue.load()
    key = await catalogue.create_namespace("guest")
    app = Gateway(platform, catalogue, store, GatewaySettings(**settings), OperatorToken(OPERATOR))
    transport = httpx.ASGITransport(app)
    async with Client(transport=transport, base_url="http://gateway", auth=basic(key)) as client:
        client.platform, client.store, client.catalogue, client.key, client.app = platform, store, catalogue, key, app
        assert (await client.put(f"{ACTIONS}/echo", json=action)).status_code == 200
        yield client
        app.close()
