"""Any request gets a documented response: never a 5xx of the gateway, and every error has a code."""

import asyncio
import re
from urllib.parse import quote

import msgspec
from gateway_client import ACTIONS, AS_OPERATOR, NS, PUT, gateway
from hypothesis import given
from hypothesis import strategies as st

from aliquot.live.catalogue.names import is_name
from aliquot.live.gateway.entities.actions import is_base64

METHODS = st.sampled_from(["GET", "PUT", "POST", "DELETE", "PATCH", "HEAD", "OPTIONS"])
SEGMENTS = st.one_of(
    st.sampled_from(
        [
            *("_", "guest", "echo", "namespaces", "actions", "activations", "packages", "triggers", "rules", "limits"),
            *("..", ".", "", "%", "%zz", "0" * 32),
        ]
    ),
    st.text(max_size=8).map(lambda text: quote(text, safe="")),
    st.text(alphabet="ab./%\\:@& -\x00é", max_size=6),
    st.binary(max_size=4).map(lambda data: "".join(f"%{byte:02x}" for byte in data)),
)
QUERIES = st.text(alphabet="abtrue=&%10?+;limitskpcoundgv", max_size=20)
SCALARS = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=10)
)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner))
PAIRS = st.lists(st.fixed_dictionaries({"key": st.text(min_size=1, max_size=5)}, optional={"value": JSON}), max_size=3)
NAMES = st.sampled_from(["/_/bell", "/guest/echo", {"path": "_", "name": "echo"}, "bell", "/_/box/none", "/lib/x/y"])
ENDS = {"trigger": "/_/bell", "action": "/_/echo"}


def ask(*requests):
    """Each is method, path and more; the answers' statuses, having looked at all that must hold."""

    async def talk():
        statuses = []
        async with gateway() as g:
            for method, path, more in requests:
                answer = await g.request(method, path, **more)
                assert answer.status_code < 500, answer.text
                assert answer.headers["x-request-id"]
                if answer.status_code >= 400 and method != "HEAD":
                    body = answer.json()
                    assert set(body) == {"error", "code"}
                    assert body["error"]
                elif method != "HEAD":
                    conforms(answer, method, path, g.app.endpoints)
                statuses.append(answer.status_code)
        return statuses

    return asyncio.run(talk())


def conforms(answer, method, path, endpoints):
    """Check the response against the OpenAPI description."""
    for endpoint in endpoints:
        pattern = re.sub(r"{\w+}", "[^/]+", endpoint.path)
        if endpoint.method == method and re.fullmatch(pattern, path):
            kind = endpoint.responses[answer.status_code]
            if kind is not None:
                msgspec.json.decode(answer.content, type=kind)
            return


@given(METHODS, st.lists(SEGMENTS, max_size=5), QUERIES)
def test_any_path_below_the_api_has_an_answer(method, segments, query):
    path = "/".join(["/api/v1/namespaces", *segments])
    ask((method, quote(path, safe="/%:@&\\"), {"params": query}))


@given(st.text(min_size=1, max_size=300))
def test_a_name_is_taken_by_every_verb_or_by_none(name):
    path = f"{ACTIONS}/{quote(name, safe='')}"
    if name in {".", ".."}:  # a client resolves them before it asks
        return
    put, get, post, delete = ask(
        ("PUT", path, {"json": PUT, "params": "overwrite=true"}),
        ("GET", path, {}),
        ("POST", path, {"params": "blocking=true"}),
        ("DELETE", path, {}),
    )
    expected = 200 if is_name(name) else 400
    assert {put, get, post, delete} == {expected}
    for collection, body in (("packages", {}), ("triggers", {}), ("rules", ENDS)):
        path = f"{NS}/{collection}/{quote(name, safe='')}"
        made = ("PUT", f"{NS}/triggers/bell", {"json": {}, "params": "overwrite=true"})
        _, *answers = ask(made, ("PUT", path, {"json": body}), ("GET", path, {}), ("DELETE", path, {}))
        taken = name == "echo" or (name == "default" and collection == "packages") or name == "bell"
        assert taken or set(answers) == {expected}


@given(st.one_of(JSON, st.fixed_dictionaries({"exec": JSON, "annotations": JSON, "parameters": JSON, "limits": JSON})))
def test_any_json_may_be_put_and_is_taken_or_refused(body):
    ask(("PUT", f"{ACTIONS}/new", {"json": body}), ("POST", f"{ACTIONS}/echo", {"json": body}))


@given(
    st.sampled_from(["packages", "triggers", "rules"]),
    st.one_of(
        JSON,
        st.fixed_dictionaries(
            {},
            optional={
                "annotations": JSON | PAIRS,
                "parameters": JSON | PAIRS,
                "publish": st.booleans(),
                "version": JSON,
                "binding": JSON | st.just({"namespace": "_", "name": "box"}),
                "trigger": JSON | NAMES,
                "action": JSON | NAMES,
            },
        ),
    ),
)
def test_any_json_may_be_put_as_any_entity(collection, body):
    path = f"{NS}/{collection}/new"
    ask(
        ("PUT", f"{NS}/triggers/bell", {"json": {}}),
        ("PUT", f"{NS}/packages/box", {"json": {}}),
        ("PUT", path, {"json": body}),
        ("PUT", path, {"json": body, "params": "overwrite=true"}),
        ("POST", path, {"json": body}),
        ("GET", path, {}),
        ("GET", f"{NS}/{collection}", {}),
        ("GET", f"{NS}/{collection}", {"params": "count=true"}),
        ("DELETE", path, {}),
    )


@given(
    st.lists(
        st.fixed_dictionaries(
            {
                "key": st.sampled_from(["gpu-share", "gpu-memory", "weight", "imports", "batch", "final", "sdk"]),
                "value": JSON,
            }
        )
    )
)
def test_any_annotation_may_be_put_and_is_taken_or_refused(annotations):
    put, get = ask(
        ("PUT", f"{ACTIONS}/new", {"json": {**PUT, "annotations": annotations}}), ("GET", f"{ACTIONS}/new", {})
    )
    assert (put, get) in {(200, 200), (400, 404)}


@given(st.binary(max_size=40), st.sampled_from(["application/json", "text/plain", "", "application/x-aliquot-pickle"]))
def test_any_bytes_may_be_posted(body, kind):
    more = {"content": body, "headers": {"content-type": kind}}
    for method in ("POST", "PUT"):
        ask((method, f"{ACTIONS}/echo", {**more, "params": "blocking=true"}))


@given(QUERIES)
def test_any_query_has_an_answer(query):
    ask(*(("GET", path, {"params": query}) for path in (ACTIONS, f"{NS}/activations", f"{ACTIONS}/echo")))
    ask(("POST", f"{ACTIONS}/echo", {"params": query}))


@given(st.sampled_from(["POST", "PATCH"]), st.text(max_size=10), JSON)
def test_the_operator_may_err_too(method, name, body):
    path = "/operator/v1/namespaces"
    path = path if method == "POST" else f"{path}/guest"
    body = {**body, "name": name} if isinstance(body, dict) and method == "POST" else body
    ask((method, path, {"json": body, "headers": AS_OPERATOR, "auth": None}))


@given(st.binary(max_size=30), st.text(max_size=30))
def test_base64_is_told_from_text(data, text):
    import base64

    encoded = base64.b64encode(data).decode()
    assert is_base64(encoded) is bool(data)
    if is_base64(text):
        base64.b64decode(text.strip(), validate=True)
