"""APIs on a real server: their routes lead to web actions."""

import json

import httpx
import pytest
from api_documents import ECHO, MANAGE, METHODS, WEB, apidoc, swagger

from aliquot.testing.server import LiveServer


@pytest.fixture(scope="module")
def server(shared_server):
    shared_server.deploy("echo", ECHO, annotations=WEB)
    shared_server.deploy("secured", ECHO, annotations=[*WEB, {"key": "require-whisk-auth", "value": "s3cret"}])
    shared_server.deploy("private", ECHO)
    return shared_server


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
    target = document["paths"]["/hi/{name}"]["get"]["x-openwhisk"]
    target |= {"action": "secured", "url": target["url"].replace("echo", "secured")}
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
