"""The API gateway: requests of `wsk api`, the npm client and the Serverless framework, and the routes they create."""

import asyncio
import json

import msgspec
import pytest
from api_documents import ECHO, MANAGE, METHODS, WEB, apidoc, swagger
from gateway_client import ACTIONS, AS_OPERATOR, gateway, on_a_loop
from hypothesis import example, given
from hypothesis import strategies as st

from aliquot.live.gateway.apis.checks import ApiError, check_path
from aliquot.live.gateway.apis.registry import Api, ApiRegistry
from aliquot.live.gateway.apis.routes import RouteTable, segments_of
from aliquot.live.gateway.apis.swagger import from_swagger
from aliquot.live.store.base import Document


async def create(g, body=None, **query):
    return await g.post(f"{MANAGE}/createApi", json=body or apidoc(), params=query)


# --- requests of clients --------------------------------------------------------------------------------


@pytest.mark.parametrize("extension", ["", ".http", ".json"])
@on_a_loop
async def test_a_route_is_created_read_and_deleted_like_by_the_npm_client(extension):
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
async def test_operations_are_added_to_and_removed_from_one_api():
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
        assert (await g.get(f"{MANAGE}/getApi")).json() == {"apis": []}  # an API ends with its last operation
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
async def test_a_wrong_request_is_an_application_error_with_a_reason(name, body, text):
    async with gateway() as g:
        answer = await g.request(METHODS[name], f"{MANAGE}/{name}", json=body)
        assert (answer.status_code, answer.json()) == (502, {"error": text})


@on_a_loop
async def test_apis_cannot_be_managed_without_a_key():
    async with gateway() as g:
        for name in ("createApi", "getApi", "deleteApi"):
            for namespace in ({}, {"namespace": "guest"}, {"__ow_user": "guest"}):
                answer = await g.post(f"{MANAGE}/{name}", params=namespace, auth=None)
                assert answer.status_code == 401
        answer = await g.get(f"{MANAGE}/getApi", params={"__ow_user": "guest"})
        assert answer.status_code == 400


@on_a_loop
async def test_another_sites_page_cannot_make_a_browser_change_apis():
    """A browser sends GET, HEAD, and POST of a form or text for any page, without a preflight request."""
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
async def test_apis_survive_a_restart_but_not_their_namespace():
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
async def test_an_api_of_a_deleted_namespace_is_not_inherited_by_a_new_one():
    async with gateway() as g:
        left = Api("late", from_swagger(swagger(), "late", ""), since=1)
        await g.store.put("apis", Document("late", "/", msgspec.json.encode(left)))
        await g.catalogue.create_namespace("late")
        assert (await g.get("/api/late/hi/you")).status_code == 404
        assert await g.store.scan("apis") == []


@on_a_loop
async def test_unpublished_actions_of_others_cannot_be_exposed():
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
        assert g.platform.calls[-1].namespace.name == "guest"  # the call belongs to the API's owner
        assert g.platform.calls[-1].function == "/other/open/echo"
        change = {"publish": False}
        await g.put("/api/v1/namespaces/_/packages/open?overwrite=true", json=change, **as_other)
        assert (await g.get("/api/guest/club/open/echo", auth=None)).status_code == 404


@on_a_loop
async def test_a_namespace_with_the_name_of_a_platform_path_has_no_apis():
    async with gateway() as g:
        answer = await g.post("/operator/v1/namespaces", headers=AS_OPERATOR, auth=None, json={"name": "v1"})
        key = answer.json()["key"].partition(":")
        answer = await g.post(f"{MANAGE}/createApi", json=apidoc(base="/namespaces"), auth=(key[0], key[2]))
        assert answer.status_code == 502
        assert "platform's own" in answer.json()["error"]


@on_a_loop
async def test_the_number_of_operations_is_limited():
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


@on_a_loop
async def test_operations_without_an_id_get_one_of_their_verb_and_path():
    async with gateway() as g:
        for path in ("/books", "/books/{isbn}", "/books/isbn", "/bookShop2/a-b"):
            assert (await create(g, apidoc(path=path))).status_code == 200
        document = (await g.get(f"{MANAGE}/getApi")).json()["apis"][0]["value"]["apidoc"]
        ids = {path: item["get"]["operationId"] for path, item in document["paths"].items()}
        assert ids == {
            "/books": "getBooks", "/books/{isbn}": "getBooksIsbn", "/books/isbn": "getBooksIsbn2",
            "/bookShop2/a-b": "getBookShop2AB",
        }  # fmt: skip


def described(name):
    return {"parameters": [{"name": name, "in": "path", "required": True, "type": "string"}]}


OPERATION = {"x-openwhisk": {"action": "echo"}}
OTHER_URL = {"x-openwhisk": {"action": "echo", "url": "http://host/api/v1/web/guest/default/other.http"}}


@pytest.mark.parametrize(
    ("paths", "said"),
    [
        ({"/a/{b}": {"get": OPERATION | described("c")}}, "'b' defined in path '/a/{b}' does not match any"),
        ({"/a/{b}": described("c") | {"get": OPERATION}}, "'b' defined in path '/a/{b}' does not match any"),
        ({"/a": {"get": OPERATION | described("c")}}, "'c' is described, but the path '/a' does not have it"),
        ({"/a/{b}": {"get": OPERATION}, "/a/{c}": {"put": OPERATION}}, "'/a/{b}' and '/a/{c}' match the same requests"),
        ({"/a": {"get": OPERATION}, "/a/": {"put": OPERATION}}, "'/a' and '/a/' match the same requests"),
        ({"/a": {"get": OPERATION, "GET": OPERATION}}, "'/a' has a verb twice"),
        ({"/a": {"get": OTHER_URL}}, "names the action 'echo', but its url is"),
        ({"/a/{b}": {"get": OPERATION | described("b")}, "/a/c": {"get": OPERATION}}, None),
    ],
)
@on_a_loop
async def test_a_document_that_contradicts_itself_is_refused(paths, said):
    async with gateway() as g:
        answer = await create(g, {"apidoc": {"swagger": {"basePath": "/x", "info": {"title": "x"}, "paths": paths}}})
        assert answer.status_code == (200 if said is None else 502)
        assert said is None or said in answer.json()["error"]


@pytest.mark.parametrize(
    "url", ["/api/v1/web/" * 100_000 + "\n", "x://" + "/" * 1_000_000, "/api/v1/web/a/b/c" + "$" * 500_000]
)
def test_a_long_url_is_parsed_quickly(url):
    operation = {"operationId": "a", "x-openwhisk": {"url": url}}
    with pytest.raises(ApiError):
        from_swagger({"basePath": "/", "info": {"a": 1}, "paths": {"/a": {"get": operation}}}, "guest", "")


def test_a_document_is_read_in_linear_time():
    """A case has as many operations as steps. Their product would exceed the memory."""
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
def test_any_document_is_accepted_as_a_whole_or_refused(document, whole):
    sent = swagger() | document if whole else document
    try:
        kept = from_swagger(sent, "guest", "http://host")
    except ApiError:
        return
    RouteTable([kept])
    assert from_swagger(kept, "guest", "http://host") == kept


@given(JSON, JSON, JSON)
def test_any_request_gets_a_response(one, two, three):
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


# --- routes ---------------------------------------------------------------------------------------------


def test_literal_segments_win_over_parameters_and_longer_bases_over_shorter():
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
def test_an_invalid_path_is_refused(path):
    with pytest.raises(ApiError):
        check_path(path)
