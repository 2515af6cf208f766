"""Web actions and API routes from the command line, called as a browser would."""

import json
import re

import httpx
import pytest
from live_platform import QuickPlatform

SHOW = "def main(args): return {'body': {'method': args['__ow_method'], 'who': args.get('who')}}\n"


@pytest.fixture(scope="module")
def platform(tmp_path_factory):
    with QuickPlatform(tmp_path_factory.mktemp("platform")) as platform:
        (platform.folder / "show.py").write_text(SHOW)
        platform.aliquot("action", "create", "show", "show.py", "--web", "true")
        yield platform


def test_a_web_action_answers_where_the_command_says(platform):
    url = platform.aliquot("action", "get", "show", "--url").strip()
    assert httpx.get(url, params={"who": "Ann"}).json() == {"method": "get", "who": "Ann"}
    shown = platform.aliquot("action", "create", "guarded", "show.py", "--web", "true", "--web-secure", "true")
    secret = re.search(r"X-Require-Whisk-Auth: (\S+)", shown)[1]
    url = platform.aliquot("action", "get", "guarded", "--url").strip()
    assert httpx.get(url).status_code == 401
    assert httpx.get(url, headers={"X-Require-Whisk-Auth": secret}).status_code == 200


def test_routes_are_created_called_listed_and_deleted(platform):
    shown = platform.aliquot("api", "create", "/shop", "/hello", "get", "show", "--response-type", "http", "-n", "Shop")
    url = re.fullmatch(r"GET (\S+/shop/hello) calls /guest/show\n", shown)[1]
    platform.aliquot("api", "create", "/shop", "/orders/{id}", "post", "show", "--response-type", "http")
    assert httpx.get(url, params={"who": "Bob"}).json() == {"method": "get", "who": "Bob"}
    assert httpx.post(url.replace("hello", "orders/7")).json()["method"] == "post"
    listed = platform.aliquot("api", "list")
    assert re.search(r"/shop/hello +GET +/guest/show +Shop", listed)
    assert re.search(r"/shop/orders/{id} +POST +/guest/show +Shop", listed)
    document = json.loads(platform.aliquot("api", "get", "Shop"))
    assert set(document["paths"]) == {"/hello", "/orders/{id}"}
    platform.aliquot("api", "delete", "/shop", "/hello", "get", "--yes")
    assert httpx.get(url).status_code == 404
    assert platform.json("api", "delete", "/shop") == {"deleted": "/shop"}
    assert platform.json("api", "list") == []
    (platform.folder / "shop.json").write_text(json.dumps({**document, "basePath": "/again"}))
    platform.aliquot("api", "create", "--config-file", "shop.json")
    assert httpx.get(url.replace("/shop/", "/again/")).status_code == 200


@pytest.mark.parametrize(
    ("arguments", "code", "told"),
    [
        (("create", "/shop", "hello", "get", "show"), 2, "ROUTE: 'hello' does not begin with /"),
        (("create", "/hello", "fetch", "show"), 2, "ROUTE: 'fetch' is not a verb; it takes get, post"),
        (("create", "/hello", "get"), 2, "ROUTE: it takes [BASE] PATH VERB ACTION"),
        (("create", "/hello", "get", "nobody"), 5, "there is no function nobody"),
        (("create", "/hello", "get", "show", "--response-type", "xml"), 2, "--response-type: 'xml' is not known"),
        (("create", "/hello", "get", "show", "--config-file", "show.py"), 2, "the document has the routes"),
        (("get", "/nowhere"), 5, "there is no API /nowhere"),
        (("delete", "/nowhere"), 5, "API deletion failure: API '/nowhere' does not exist."),
    ],
)
def test_mistakes_are_named_with_what_to_do(platform, arguments, code, told):
    assert told in json.loads(platform.aliquot("api", *arguments, "--json", code=code))["error"]["message"]
