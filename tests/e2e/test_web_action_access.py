"""Access to web actions on a real server: with and without a key, with a secret word, and to those not exported."""

import httpx
import pytest
from web_answers import ECHO, annotations, args_of, error_of


@pytest.fixture(scope="module")
def server(shared_server):
    shared_server.deploy("echo", ECHO, annotations=annotations(web_export=True))
    shared_server.deploy("private", ECHO)
    shared_server.deploy("keyed", ECHO, annotations=annotations(web_export=True, require_whisk_auth=True))
    shared_server.deploy("asked", ECHO, annotations=annotations(web_export="true"))
    shared_server.deploy("secret", ECHO, annotations=annotations(web_export=True, require_whisk_auth="open sesame"))
    shared_server.deploy("number", ECHO, annotations=annotations(web_export=True, require_whisk_auth=4711))
    shared_server.deploy("shut", ECHO, annotations=annotations(web_export=True, require_whisk_auth=[]))
    shared_server.deploy("open", ECHO, annotations=annotations(web_export=True, require_whisk_auth=False))
    return shared_server


@pytest.fixture(scope="module")
def web(server):
    with httpx.Client(base_url=f"{server.url}/api/v1/web/{server.namespace}/default/", timeout=60) as client:
        yield client


@pytest.mark.parametrize("path", ["private", "asked", "nothing", "../../whisk.system/utils/echo", "a/b/c", ""])
def test_what_is_not_a_web_action_is_not_there(web, path):
    assert error_of(web.get(path)) == (404, "The requested resource does not exist.")


def test_a_namespace_or_package_that_is_not_there_is_a_404(server):
    for path in ("nobody/default/echo", f"{server.namespace}/nothing/echo", f"{server.namespace}/echo", "x", ""):
        assert httpx.get(f"{server.url}/api/v1/web/{path}").status_code == 404


def test_a_key_is_told_by_its_namespaces_name_and_not_shown(server, web):
    user, _, secret = server.key.partition(":")
    args = args_of(web.get("echo.json", auth=(user, secret)))
    assert args["__ow_user"] == server.namespace
    assert "authorization" not in args["__ow_headers"]
    wrong = args_of(web.get("echo.json", auth=(user, "wrong")))
    assert "__ow_user" not in wrong
    assert "authorization" in wrong["__ow_headers"]


def test_an_action_may_ask_for_a_key(server, web):
    user, _, secret = server.key.partition(":")
    assert web.get("keyed").status_code == 401
    assert web.get("keyed", auth=(user, "wrong")).status_code == 401
    assert args_of(web.get("keyed.json", auth=(user, secret)))["__ow_user"] == server.namespace


@pytest.mark.parametrize(("action", "word"), [("secret", "open sesame"), ("number", "4711")])
def test_an_action_may_ask_for_a_word(web, action, word):
    assert web.get(action).status_code == 401
    assert web.get(action, headers={"X-Require-Whisk-Auth": word + "x"}).status_code == 401
    assert web.get(action, headers={"X-Require-Whisk-Auth": ""}).status_code == 401
    assert web.get(f"{action}.json", headers={"x-require-whisk-auth": word}).status_code == 200


def test_an_action_that_asks_for_nonsense_is_shut(server, web):
    user, _, secret = server.key.partition(":")
    assert web.get("shut", auth=(user, secret), headers={"x-require-whisk-auth": "[]"}).status_code == 401


def test_an_action_that_asks_for_no_key_is_open(web):
    assert web.get("open.json").status_code == 200
