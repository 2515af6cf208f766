"""The npm client's verbs on routes, and what the routes then answer."""

import httpx
import pytest
from npm_client import ClientError, NpmClient, needs_node

pytestmark = needs_node

SHOW = "def main(args): return {'method': args['__ow_method'], 'who': args.get('who')}"
PAGE = "def main(args): return {'statusCode': 201, 'headers': {'x-page': 'yes'}, 'body': 'a page'}"


@pytest.fixture(scope="module")
def action(client):
    options = {"name": "show", "action": SHOW, "kind": "python:3.11", "annotations": {"web-export": True}}
    client.actions.create(options)
    return "show"


@pytest.fixture(autouse=True)
def no_routes_stay(client):
    yield
    for api in client.routes.list()["apis"]:
        client.routes.delete({"basepath": api["value"]["apidoc"]["basePath"]})


def test_a_route_is_created_listed_called_and_deleted(client, action):
    made = client.routes.create({"action": action, "basepath": "/shop", "relpath": "/hello", "operation": "GET"})
    assert made["gwApiUrl"].startswith("http")
    (api,) = client.routes.list()["apis"]
    apidoc = api["value"]["apidoc"]
    assert apidoc["basePath"] == "/shop"
    operation = apidoc["paths"]["/hello"]["get"]
    assert operation["x-openwhisk"]["action"] == action
    assert operation["x-openwhisk"]["namespace"] in {"_", "guest"}
    url = api["value"]["gwApiUrl"]
    assert httpx.get(f"{url}/hello", params={"who": "Ann"}).json() == {"method": "get", "who": "Ann"}
    assert httpx.get(f"{url}/other").status_code == 404
    client.routes.delete({"basepath": "/shop"})
    assert client.routes.list()["apis"] == []
    assert httpx.get(f"{url}/hello").status_code == 404


def test_a_route_may_answer_as_the_action_says(client):
    options = {"name": "page", "action": PAGE, "kind": "python:3.11", "annotations": {"web-export": True}}
    client.actions.create(options)
    route = {"action": "page", "basepath": "/shop", "relpath": "/page", "operation": "GET", "responsetype": "http"}
    made = client.routes.create(route)
    answer = httpx.get(f"{made['gwApiUrl']}/page")
    assert (answer.status_code, answer.headers["x-page"], answer.text) == (201, "yes", "a page")


def test_routes_of_one_base_path_are_one_api(client, action):
    for relpath, operation in (("/a", "GET"), ("/a", "POST"), ("/b", "PUT")):
        client.routes.create({"action": action, "basepath": "/shop", "relpath": relpath, "operation": operation})
    (api,) = client.routes.get({"basepath": "/shop"})["apis"]
    paths = api["value"]["apidoc"]["paths"]
    assert {path: {m for m in methods if m in {"get", "post", "put"}} for path, methods in paths.items()} == {
        "/a": {"get", "post"},
        "/b": {"put"},
    }
    url = api["value"]["gwApiUrl"]
    assert httpx.post(f"{url}/a", json={"who": "Bob"}).json() == {"method": "post", "who": "Bob"}
    client.routes.delete({"basepath": "/shop", "relpath": "/a", "operation": "GET"})
    (api,) = client.routes.list({"basepath": "/shop"})["apis"]
    assert "get" not in api["value"]["apidoc"]["paths"]["/a"]
    client.routes.delete({"basepath": "/shop", "relpath": "/b"})
    (api,) = client.routes.list({"basepath": "/shop"})["apis"]
    assert set(api["value"]["apidoc"]["paths"]) == {"/a"}


def test_an_api_may_have_a_name(client, action):
    route = {"action": action, "basepath": "/named", "relpath": "/x", "operation": "GET", "name": "My API"}
    client.routes.create(route)
    (api,) = client.routes.list({"basepath": "/named"})["apis"]
    assert api["value"]["apidoc"]["info"]["title"] == "My API"


def test_an_api_may_be_a_whole_document(client, server, action):
    target = {"action": action, "namespace": "guest", "package": "default"}
    target |= {"url": f"{server.url}/api/v1/web/guest/default/show.json"}
    document = {
        "swagger": "2.0",
        "info": {"title": "whole", "version": "1"},
        "basePath": "/whole",
        "paths": {"/x": {"get": {"operationId": "getX", "x-openwhisk": target, "responses": {}}}},
    }
    import json

    made = client.routes.create({"swagger": json.dumps(document)})
    assert made["gwApiUrl"]
    (api,) = client.routes.list({"basepath": "/whole"})["apis"]
    assert api["value"]["apidoc"]["info"]["title"] == "whole"
    assert httpx.get(f"{api['value']['gwApiUrl']}/x").json() == {"method": "get", "who": None}


def test_a_token_of_the_gateways_is_taken(client, server, action):
    with NpmClient(apihost=server.url, api_key=server.key, apigw_token="token") as with_token:  # noqa: S106 - no secret
        route = {"action": action, "basepath": "/shop", "relpath": "/t", "operation": "GET"}
        with_token.routes.create(route)
        assert len(with_token.routes.list()["apis"]) == 1
        with_token.routes.delete({"basepath": "/shop"})


def test_routes_are_their_namespaces_own(client, stranger, action):
    client.routes.create({"action": action, "basepath": "/shop", "relpath": "/hello", "operation": "GET"})
    assert stranger.routes.list()["apis"] == []
    with pytest.raises(ClientError):
        stranger.routes.delete({"basepath": "/shop"})
    assert len(client.routes.list()["apis"]) == 1


def test_a_wrong_key_is_refused(server):
    with NpmClient(apihost=server.url, api_key="no:key") as nobody, pytest.raises(ClientError) as error:
        nobody.routes.list()
    assert error.value.status == 401
