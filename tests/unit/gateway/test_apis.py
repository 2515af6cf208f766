"""The API gateway: what `wsk api`, the npm client and the Serverless framework send, and what is then served."""

import asyncio
import json

import httpx
import msgspec
import pytest
from gateway_client import ACTIONS, AS_OPERATOR, gateway, on_a_loop
from hypothesis import example, given
from hypothesis import strategies as st

from aliquot.live.gateway.apis.checks import ApiError, check_path
from aliquot.live.gateway.apis.registry import Api, ApiRegistry
from aliquot.live.gateway.apis.routes import RouteTable, segments_of
from aliquot.live.gateway.apis.swagger import from_swagger
from aliquot.live.store.base import Document
from aliquot.testing.server import LiveServer

MANAGE = "/api/v1/web/whisk.system/apimgmt"
METHODS = {"createApi": "POST", "getApi": "GET", "deleteApi": "DELETE"}
ECHO = "def main(args):\n    return {'args': args}"
WEB = [{"key": "web-export", "value": True}]


def apidoc(action="echo", base="/club", path="/books", verb="GET", **more):
    """As today's npm client sends it."""
    name = action.rpartition("/")[2] if action.startswith("/") else action
    said = {"name": name, "namespace": "_", "backendMethod": "GET", "authkey": "uuid:verysecret"}
    said |= {"backendUrl": f"http://host/api/v1/web/_/default/{name}.http"} | more.pop("said", {})
    doc = {"namespace": "_", "gatewayBasePath": base, "gatewayPath": path, "gatewayMethod": verb}
    return {"apidoc": doc | {"id": f"API:_:{base}", "action": said} | more}


def swagger(base="/", host="host", key="s3cret"):
    """As serverless-openwhisk sends it."""
    target = f"https://{host}/api/v1/web/guest/default/echo.json"
    header = {"set": "message.headers.X-Require-Whisk-Auth", "value": key}
    case = {"operations": ["get-/hi/{name}"]}
    case["execute"] = [
        {"set-variable": {"actions": [header]}},
        {"invoke": {"target-url": f"{target}$(request.path)", "verb": "keep"}},
    ]
    operation = {"operationId": "get-/hi/{name}", "responses": {"200": {"description": "A successful response"}}}
    operation["x-openwhisk"] = {"action": "echo", "namespace": "guest", "package": "default", "url": target}
    operation["parameters"] = [{"name": "name", "in": "path", "required": True, "type": "string"}]
    return {
        "swagger": "2.0",
        "basePath": base,
        "info": {"title": "service", "version": "1.0"},
        "paths": {"/hi/{name}": {"get": operation}},
        "x-ibm-configuration": {
            "cors": {"enabled": True},
            "assembly": {"execute": [{"operation-switch": {"case": [case]}}]},
        },
    }


async def create(g, body=None, **query):
    return await g.post(f"{MANAGE}/createApi", json=body or apidoc(), params=query)


# --- what clients send ----------------------------------------------------------------------------------


@pytest.mark.parametrize("extension", ["", ".http", ".json"])
@on_a_loop
async def test_a_route_is_made_read_and_deleted_as_the_npm_client_does(extension):
    async with gateway() as g:
        query = {"accesstoken": "token", "spaceguid": "space"}
        made = await g.post(f"{MANAGE}/createApi{extension}", json=apidoc(), params=query)
        assert made.status_code == 200
        assert made.json()["gwApiUrl"] == "http://gateway/api/guest/club"
        found = (await g.get(f"{MANAGE}/getApi{extension}", params=query | {"basepath": "/club"})).json()
        assert len(found["apis"]) == 1
        value = found["apis"][0]["value"]
        assert value["apidoc"]["basePath"] == "/club"
        assert value["apidoc"]["paths"]["/books"]["get"]["x-openwhisk"]["action"] == "echo"
        assert value["apidoc"]["info"]["title"] == "/club"
        assert value["gwApiActivated"] is True
        gone = await g.delete(f"{MANAGE}/deleteApi{extension}", params=query | {"basepath": "/club", "force": True})
        assert (gone.status_code, gone.json()) == (200, {})
        assert (await g.get(f"{MANAGE}/getApi{extension}")).json() == {"apis": []}


@on_a_loop
async def test_the_key_in_the_request_is_neither_kept_nor_shown():
    async with gateway() as g:
        await create(g)
        shown = (await g.get(f"{MANAGE}/getApi")).text
        (stored,) = await g.store.scan("apis")
        assert "verysecret" not in shown
        assert b"verysecret" not in stored.body


@on_a_loop
async def test_operations_gather_in_one_api_and_go_one_by_one():
    async with gateway() as g:
        for path, verb in (("/books", "get"), ("/books", "post"), ("/books/{isbn}", "get")):
            assert (await create(g, apidoc(path=path, verb=verb, apiName="Book Club"))).status_code == 200

        async def verbs(**query):
            apis = (await g.get(f"{MANAGE}/getApi", params=query)).json()["apis"]
            return {path: sorted(item) for api in apis for path, item in api["value"]["apidoc"]["paths"].items()}

        everything = {"/books": ["get", "post"], "/books/{isbn}": ["get"]}
        assert await verbs() == everything
        assert await verbs(basepath="Book Club") == everything
        assert await verbs(basepath="/other") == {}
        assert await verbs(relpath="/books", operation="POST") == {"/books": ["post"]}
        assert await verbs(relpath="/books") == {"/books": ["get", "post"]}
        assert await verbs(skip="1") == {}

        async def delete(**query):
            answer = await g.delete(f"{MANAGE}/deleteApi", params={"basepath": "/club", **query})
            return answer.status_code

        assert await delete(relpath="/books", operation="GET") == 200
        assert await verbs() == {"/books": ["post"], "/books/{isbn}": ["get"]}
        assert await delete(relpath="/books/{isbn}") == 200
        assert await delete(relpath="/books", operation="post") == 200
        assert (await g.get(f"{MANAGE}/getApi")).json() == {"apis": []}  # the last one takes the API with it
        assert await delete() == 502


ERRORS = [
    ("createApi", {}, "apidoc is required."),
    ("createApi", {"apidoc": "{"}, "apidoc field cannot be parsed. Ensure it is valid JSON."),
    ("createApi", {"apidoc": 5}, "apidoc field should be a JSON object or a JSON string."),
    ("createApi", {"apidoc": {"namespace": "_"}}, "API creation failure: apidoc is missing the gatewayBasePath field"),
    ("createApi", apidoc(said={"name": ""}), "API creation failure: action is missing the name field."),
    ("createApi", apidoc(path="books"), "API creation failure: 'books' must begin with '/'."),
    ("createApi", apidoc(base="/a/{b}"), ("API creation failure: The base path '/a/{b}' cannot have parameters. "
     "Only the relative path supports path parameters.")),
    ("createApi", apidoc(path="/x/{__ow_user}"), "API creation failure: '__ow_user' is a reserved name."),
    ("createApi", apidoc(verb="BREW"), ("API creation failure: 'BREW' is not a verb; "
     "it takes one of get, put, post, delete, patch, head, options.")),
    ("createApi", {"apidoc": {"namespace": "_", "swagger": {"basePath": "/x"}}},
     "API creation failure: swagger is missing the paths field."),
    ("createApi", {"apidoc": {"namespace": "_", "swagger": swagger() | {"securityDefinitions": {"a": {}}}}},
     ("API creation failure: securityDefinitions: this gateway would not hold callers to it; "
     "secure the web action instead.")),
    ("deleteApi", {}, "basepath is required."),
    ("deleteApi", {"basepath": "/x"}, "API deletion failure: API '/x' does not exist."),
    ("deleteApi", {"basepath": "/x", "operation": "get"}, "When specifying an operation, the path is required."),
]  # fmt: skip


@pytest.mark.parametrize(("name", "body", "text"), ERRORS)
@on_a_loop
async def test_what_is_wrong_is_an_application_error_that_says_so(name, body, text):
    async with gateway() as g:
        answer = await g.request(METHODS[name], f"{MANAGE}/{name}", json=body)
        assert (answer.status_code, answer.json()) == (502, {"error": text})


@on_a_loop
async def test_without_a_key_nobody_manages_apis():
    async with gateway() as g:
        for name in ("createApi", "getApi", "deleteApi"):
            for namespace in ({}, {"namespace": "guest"}, {"__ow_user": "guest"}):
                answer = await g.post(f"{MANAGE}/{name}", params=namespace, auth=None)
                assert answer.status_code == 401
        answer = await g.get(f"{MANAGE}/getApi", params={"__ow_user": "guest"})
        assert answer.status_code == 400


@on_a_loop
async def test_a_page_elsewhere_cannot_have_a_browser_change_apis():
    """What a browser sends for any page, without asking first: GET, HEAD, and POST of a form or of text."""
    async with gateway() as g:
        await create(g)
        for method in ("GET", "HEAD", "POST"):
            assert (await g.request(method, f"{MANAGE}/deleteApi", params={"basepath": "/club"})).status_code == 405
        body = {"apidoc": json.dumps(apidoc(path="/forged")["apidoc"])}
        assert (await g.get(f"{MANAGE}/createApi", params=body)).status_code == 405
        assert (await g.post(f"{MANAGE}/createApi", data=body)).status_code == 415
        text = {"content": json.dumps(apidoc(path="/forged")), "headers": {"content-type": "text/plain"}}
        assert (await g.post(f"{MANAGE}/createApi", **text)).status_code == 415
        (api,) = (await g.get(f"{MANAGE}/getApi")).json()["apis"]
        assert list(api["value"]["apidoc"]["paths"]) == ["/books"]


@on_a_loop
async def test_apis_outlive_the_server_and_not_their_namespace():
    async with gateway() as g:
        key = await g.catalogue.create_namespace("short")
        user, _, secret = key.partition(":")
        await g.post(f"{MANAGE}/createApi", json=apidoc(), auth=(user, secret))
        await create(g)
        await g.catalogue.delete_namespace("short")
        assert len(await g.store.scan("apis")) == 1
        again = (await g.catalogue.create_namespace("short")).partition(":")
        assert (await g.get(f"{MANAGE}/getApi", auth=(again[0], again[2]))).json() == {"apis": []}
        assert (await g.get("/api/short/club/books")).status_code == 404
        later = ApiRegistry(g.store, g.catalogue)
        assert [api.base_path for api in await later.all("guest")] == ["/club"]


@on_a_loop
async def test_an_api_of_a_namespace_that_is_no_more_is_not_its_namesakes():
    async with gateway() as g:
        left = Api("late", from_swagger(swagger(), "late", ""), since=1)
        await g.store.put("apis", Document("late", "/", msgspec.json.encode(left)))
        await g.catalogue.create_namespace("late")
        assert (await g.get("/api/late/hi/you")).status_code == 404
        assert await g.store.scan("apis") == []


@on_a_loop
async def test_what_others_have_not_published_cannot_be_exposed():
    async with gateway() as g:
        key = (await g.catalogue.create_namespace("other")).partition(":")
        as_other = {"auth": (key[0], key[2])}
        body = {"exec": {"kind": "python:3.11", "code": ECHO}, "annotations": WEB}
        await g.put("/api/v1/namespaces/_/packages/open", json={"publish": True}, **as_other)
        await g.put("/api/v1/namespaces/_/packages/closed", json={}, **as_other)
        for name in ("open/echo", "closed/echo", "echo"):
            assert (await g.put(f"{ACTIONS}/{name}", json=body, **as_other)).status_code == 200
        for name, status in (("open/echo", 200), ("closed/echo", 403), ("echo", 403), ("open/none", 403)):
            asked = apidoc(said={"name": name, "namespace": "other"}, path=f"/{name}")
            assert (await create(g, asked)).status_code == status
        answer = await g.get("/api/guest/club/open/echo", auth=None)
        assert answer.status_code == 200
        assert g.platform.calls[-1].namespace.name == "guest"  # who exposes it, pays
        assert g.platform.calls[-1].function == "/other/open/echo"
        change = {"publish": False}
        await g.put("/api/v1/namespaces/_/packages/open?overwrite=true", json=change, **as_other)
        assert (await g.get("/api/guest/club/open/echo", auth=None)).status_code == 404


@on_a_loop
async def test_a_namespace_named_like_the_platforms_own_path_has_no_apis():
    async with gateway() as g:
        answer = await g.post("/operator/v1/namespaces", headers=AS_OPERATOR, auth=None, json={"name": "v1"})
        key = answer.json()["key"].partition(":")
        answer = await g.post(f"{MANAGE}/createApi", json=apidoc(base="/namespaces"), auth=(key[0], key[2]))
        assert answer.status_code == 502
        assert "platform's own" in answer.json()["error"]


@on_a_loop
async def test_there_are_so_many_operations_and_no_more():
    def document(base, count):
        operation = {"x-openwhisk": {"action": "echo"}}
        paths = {f"/{n}": {"get": operation} for n in range(count)}
        return {"apidoc": {"swagger": {"basePath": base, "info": {"title": "x"}, "paths": paths}}}

    async with gateway() as g:
        assert (await create(g, document("/a", 600))).status_code == 200
        assert (await create(g, document("/b", 400))).status_code == 200
        assert (await create(g, document("/a", 600))).status_code == 200
        for more in (document("/b", 401), document("/c", 2000), apidoc()):
            answer = await create(g, more)
            assert answer.status_code == 502
            assert "at most 1000 operations" in answer.json()["error"]
        large = document("/b", 1)
        large["apidoc"]["swagger"]["description"] = "x" * 2**20
        assert "larger than allowed" in (await create(g, large)).json()["error"]
        large["apidoc"]["swagger"]["description"] = "x" * 2**23
        assert (await create(g, large)).status_code == 413


@pytest.mark.parametrize(
    "url", ["/api/v1/web/" * 100_000 + "\n", "x://" + "/" * 1_000_000, "/api/v1/web/a/b/c" + "$" * 500_000]
)
def test_an_address_is_looked_at_in_no_time(url):
    operation = {"operationId": "a", "x-openwhisk": {"url": url}}
    with pytest.raises(ApiError):
        from_swagger({"basePath": "/", "info": {"a": 1}, "paths": {"/a": {"get": operation}}}, "guest", "")


def test_a_document_is_read_once_through_however_it_is_knotted():
    """A case with as many operations as steps: their product would be more than there is memory for."""
    step = {"set-variable": {"actions": [{"set": "message.headers.X-Require-Whisk-Auth", "value": "s"}] * 3}}
    case = {"operations": [f"op{n}" for n in range(30_000)], "execute": [step, {"invoke": {}}] * 30_000}
    document = swagger()
    document["x-ibm-configuration"]["assembly"]["execute"][0]["operation-switch"]["case"] += [case]
    assert from_swagger(document, "guest", "")["paths"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
)
FIELDS = [*sorted(swagger()), "assembly", "execute", "operation-switch", "case", "operations", "set-variable", "get"]
NESTED = st.recursive(
    JSON,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from([*FIELDS, "/a", "/{b}", "x-openwhisk", "action", "operationId"]), inner)
    ),
    max_leaves=30,
)


@example({"paths": {"/a": {"parameters": []}}}, True)
@given(st.dictionaries(st.sampled_from(FIELDS), NESTED), st.booleans())
def test_any_document_is_taken_whole_or_refused(document, whole):
    sent = swagger() | document if whole else document
    try:
        kept = from_swagger(sent, "guest", "http://host")
    except ApiError:
        return
    RouteTable([kept])
    assert from_swagger(kept, "guest", "http://host") == kept


@given(JSON, JSON, JSON)
def test_whatever_is_sent_has_an_answer(one, two, three):
    async def talk():
        async with gateway() as g:
            for name in ("createApi", "getApi", "deleteApi"):
                bodies = [one, {"apidoc": one, "basepath": two, "relpath": three, "operation": one, "skip": two}]
                bodies += [apidoc(path=one, verb=two, base=three), apidoc(said={"name": one, "namespace": two})]
                bodies.append({"apidoc": {"swagger": swagger() | {"paths": {"/a": {"get": one}}, "info": two}}})
                for body in bodies:
                    answer = await g.request(METHODS[name], f"{MANAGE}/{name}", json=body)
                    assert answer.status_code in {200, 400, 403, 502}
                    assert answer.status_code == 200 or answer.json()["error"]

    asyncio.run(talk())


# --- what is served -------------------------------------------------------------------------------------


def test_words_come_before_parameters_and_longer_bases_before_shorter():
    def document(base, *paths):
        operation = {"x-openwhisk": {"action": f"in{base.strip('/')}"}}
        return from_swagger(
            {"basePath": base, "info": {"title": "x"}, "paths": {path: {"get": operation} for path in paths}}, "g", ""
        )

    routes = RouteTable([document("/", "/a/b", "/a/{x}", "/{x}/b", "/"), document("/a", "/b", "/{y}/{z}/")])

    def find(path):
        found = routes.find(segments_of(path))
        return found and (found[0].operations["GET"].action.name, found[1])

    assert find("/a/b") == ("ina", {})
    assert find("/a/c") == ("in", {"x": "c"})
    assert find("/c/b/") == ("in", {"x": "c"})
    assert find("/a/1/2") == ("ina", {"y": "1", "z": "2"})
    assert find("/") == ("in", {})
    assert find("/c") is None
    assert find("/a/b/c/d") is None


@pytest.mark.parametrize(
    "path", ["", "a", "/..", "/a/../b", "/{a}{b}", "/x{a}", "/{}", "/a?b", "/a#b", "/a\\b", "/a\n", 5]
)
def test_a_path_that_could_be_read_in_two_ways_is_none(path):
    with pytest.raises(ApiError):
        check_path(path)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LiveServer(tmp_path_factory.mktemp("apis") / "data") as server:
        server.deploy("echo", ECHO, annotations=WEB)
        server.deploy("secured", ECHO, annotations=[*WEB, {"key": "require-whisk-auth", "value": "s3cret"}])
        server.deploy("private", ECHO)
        yield server


@pytest.fixture
def manage(server):
    user, _, secret = server.key.partition(":")

    def send(name, body=None, **query):
        url = f"{server.url}{MANAGE}/{name}"
        answer = httpx.request(METHODS[name], url, json=body or {}, params=query, auth=(user, secret))
        assert answer.status_code == 200, answer.text
        return answer.json()

    yield send
    for api in send("getApi")["apis"]:
        send("deleteApi", {"basepath": api["key"]})


def test_a_route_leads_to_its_action_with_the_names_of_its_path(server, manage):
    url = manage("createApi", apidoc(path="/books/{isbn}", verb="get"))["gwApiUrl"]
    assert url == f"{server.url}/api/{server.namespace}/club"
    answer = httpx.get(f"{url}/books/12%2F3", params={"isbn": "forged", "q": "1"})
    assert answer.status_code == 200
    args = answer.json()["args"]
    assert (args["isbn"], args["q"], args["__ow_method"]) == ("12/3", "1", "get")
    assert args["__ow_path"] == "/club/books/12%2F3"
    assert answer.headers["x-openwhisk-activation-id"]
    manage("createApi", apidoc(path="/books/{isbn}", verb="put"))
    for size in (10, 2**21):
        answer = httpx.put(f"{url}/books/7", json={"x": "x" * size, "isbn": "forged"})
        assert answer.status_code == 400 or answer.json()["args"]["isbn"] == "7"
        assert httpx.put(f"{url}/books/7", json={"x": "x" * size}).json()["args"]["isbn"] == "7"
    assert httpx.post(f"{url}/books/1").status_code == 405
    assert httpx.post(f"{url}/books/1").headers["allow"] == "GET, PUT"
    assert httpx.get(f"{url}/books").status_code == 404
    assert httpx.get(f"{url}/books/1/2").status_code == 404
    assert set(httpx.get(f"{url}/books").json()) == {"error", "code"}


def test_the_response_type_says_how_the_result_is_shown(server, manage):
    server.deploy("made", "def main(args):\n    return {'statusCode': 201, 'body': 'made'}", annotations=WEB)
    url = manage("createApi", apidoc("made", path="/a", verb="post"), responsetype="http")["gwApiUrl"]
    manage("createApi", apidoc("made", path="/b", verb="post"))
    answer = httpx.post(f"{url}/a", json={})
    assert (answer.status_code, answer.text) == (201, "made")
    assert httpx.post(f"{url}/b", json={}).json() == {"statusCode": 201, "body": "made"}


def test_a_whole_document_of_the_serverless_framework_is_served_with_its_secret(server, manage):
    document = swagger()
    document["paths"]["/hi/{name}"]["get"]["x-openwhisk"]["action"] = "secured"
    url = manage("createApi", {"apidoc": {"namespace": "_", "swagger": document}})["gwApiUrl"]
    assert httpx.get(f"{url}/hi/you").json()["args"]["name"] == "you"
    assert httpx.get(f"{url}/hi/you", headers={"x-require-whisk-auth": "wrong"}).status_code == 200
    direct = f"{server.url}/api/v1/web/{server.namespace}/default/secured.json"
    assert httpx.get(direct).status_code == 401
    kept = manage("getApi")["apis"][0]["value"]["apidoc"]
    manage("createApi", {"apidoc": {"namespace": "_", "swagger": json.dumps(kept)}})
    assert httpx.get(f"{url}/hi/you").status_code == 200


def test_a_secure_key_is_passed_on(manage):
    open_, shut = apidoc("secured", said={"secureKey": "s3cret"}), apidoc("secured", path="/shut")
    url = manage("createApi", open_)["gwApiUrl"]
    manage("createApi", shut)
    assert httpx.get(f"{url}/books").status_code == 200
    assert httpx.get(f"{url}/shut").status_code == 401


def test_browsers_are_told_which_methods_there_are(manage):
    url = manage("createApi", apidoc(verb="put"))["gwApiUrl"]
    answer = httpx.options(f"{url}/books", headers={"access-control-request-headers": "X-A"})
    assert answer.status_code == 200
    assert answer.headers["access-control-allow-methods"] == "OPTIONS, PUT"
    assert answer.headers["access-control-allow-headers"] == "X-A"
    assert httpx.put(f"{url}/books").headers["access-control-allow-origin"] == "*"


def test_an_api_may_keep_browsers_out(manage):
    document = swagger("/closed")
    document["x-ibm-configuration"]["cors"]["enabled"] = False
    url = manage("createApi", {"apidoc": {"namespace": "_", "swagger": document}})["gwApiUrl"]
    assert "access-control-allow-origin" not in httpx.get(f"{url}/hi/you").headers
    assert httpx.options(f"{url}/hi/you").status_code == 405


def test_an_action_that_is_not_for_the_web_is_not_served(manage):
    url = manage("createApi", apidoc("private"))["gwApiUrl"]
    assert httpx.get(f"{url}/books").status_code == 404


def test_apis_are_there_after_a_crash(tmp_path):
    with LiveServer(tmp_path / "data") as server:
        server.deploy("echo", ECHO, annotations=WEB)
        user, _, secret = server.key.partition(":")
        httpx.post(f"{server.url}{MANAGE}/createApi", json=apidoc(), auth=(user, secret)).raise_for_status()
        server.kill()
        server.start()
        answer = httpx.get(f"{server.url}/api/{server.namespace}/club/books", params={"a": "1"})
        assert answer.json()["args"]["a"] == "1"
