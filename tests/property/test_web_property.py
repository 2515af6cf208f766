"""Any request for web actions and API routes, with any result, gets a response, and never a 500."""

import asyncio
import json
from urllib.parse import quote

from gateway_client import ACTIONS, PUT, gateway
from hypothesis import given
from hypothesis import strategies as st

from aliquot.live.node.base import Outcome, Status

METHODS = st.sampled_from(["GET", "PUT", "POST", "DELETE", "PATCH", "HEAD", "OPTIONS", "TRACE", "get", "BREW"])
SEGMENTS = st.one_of(
    st.sampled_from(
        ["guest", "default", "echo", "raw", "echo.json", "echo.http", "..", "", "%", "%2e%2e", "shop", "v1"]
    ),
    st.sampled_from(["web", "whisk.system", "apimgmt", "getApi", "createApi.http", "_"]),
    st.text(max_size=8).map(lambda text: quote(text, safe="")),
    st.binary(max_size=4).map(lambda data: "".join(f"%{byte:02x}" for byte in data)),
)
TYPES = st.sampled_from(["application/json", "text/plain", "image/png", "application/x-www-form-urlencoded", "x", ""])
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9)
)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner))
RESULTS = JSON | st.fixed_dictionaries({}, optional={"statusCode": JSON, "headers": JSON, "body": JSON, "error": JSON})


def ask(method, path, result, status, **more):
    async def talk():
        web = PUT | {"annotations": [{"key": "web-export", "value": True}]}
        async with gateway(action=web) as g:
            raw = {"annotations": [*web["annotations"], {"key": "raw-http", "value": True}]}
            await g.put(f"{ACTIONS}/raw", json=PUT | raw)
            said = {"name": "echo", "namespace": "_", "backendMethod": "GET", "backendUrl": "x"}
            route = {"gatewayBasePath": "/shop", "gatewayPath": "/{x}", "gatewayMethod": "get", "action": said}
            manage = "/api/v1/web/whisk.system/apimgmt/createApi"
            assert (await g.post(manage, json={"apidoc": route})).status_code == 200
            g.platform.answer = lambda _: Outcome(status, json.dumps(result).encode(), 0)
            answer = await g.request(method, path, **more)
            ran = len(g.platform.calls)
            assert ran or answer.status_code < 500 or (answer.status_code == 502 and "whisk.system" in path)
            assert answer.headers["x-request-id"]
            assert ("x-openwhisk-activation-id" in answer.headers) == bool(ran)
            if answer.status_code >= 400 and not ran and method != "HEAD":
                assert answer.json()["error"]
            assert g.app.rate_limiters.limiter(g.catalogue.namespace("guest")).running == 0

    asyncio.run(talk())


@given(METHODS, st.lists(SEGMENTS, max_size=5), RESULTS, st.sampled_from(Status), st.binary(max_size=20), TYPES)
def test_any_path_has_an_answer(method, segments, result, status, body, kind):
    for start in ("/api/v1/web", "/api"):
        path = "/".join([start, *segments])
        ask(method, quote(path, safe="/%"), result, status, content=body, headers={"content-type": kind})


@given(METHODS, SEGMENTS, RESULTS, st.sampled_from(Status), JSON, st.text(max_size=20))
def test_any_call_of_a_web_action_has_an_answer(method, rest, result, status, body, query):
    for place in ("/api/v1/web/guest/default/echo", "/api/v1/web/guest/default/raw.http", "/api/guest/shop"):
        ask(method, f"{place}/{quote(rest, safe='/%')}", result, status, json=body, params={"q": query, query: "x"})
