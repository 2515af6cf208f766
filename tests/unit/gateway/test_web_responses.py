"""Responses of web actions: one row for every rule, and no result can break a response."""

import json
import re

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.live.gateway.http.refusal import Refusal
from aliquot.live.gateway.web.responses import RENDERERS, web_response
from aliquot.live.node.base import Outcome, Status

TEXT, HTML = "text/plain; charset=UTF-8", "text/html; charset=UTF-8"


def shown(result, extension=".http", status=Status.SUCCESS):
    """Return status, content type and body."""
    made = web_response(Outcome(status, msgspec.json.encode(result), 0), extension)
    return made.status, dict(made.headers).get(b"content-type", b"").decode(), made.body


def refused(result, extension=".http", status=Status.SUCCESS):
    with pytest.raises(Refusal) as caught:
        web_response(Outcome(status, msgspec.json.encode(result), 0), extension)
    return caught.value.status, caught.value.text


ROWS = [
    # extension, result, status, content type, body
    (".json", {"a": [1]}, 200, "application/json", b'{"a":[1]}'),
    (".json", [1, 2], 200, "application/json", b"[1,2]"),
    (".html", {"html": "<b>"}, 200, HTML, b"<b>"),
    (".html", {"body": "<i>", "html": "<b>"}, 200, HTML, b"<i>"),
    (".svg", {"svg": "<svg/>"}, 200, "image/svg+xml", b"<svg/>"),
    (".svg", {"body": "<svg/>"}, 200, "image/svg+xml", b"<svg/>"),
    (".text", {"text": "hé"}, 200, TEXT, "hé".encode()),
    (".text", {"body": True}, 200, TEXT, b"true"),
    (".text", {"text": 1.5}, 200, TEXT, b"1.5"),
    (".text", {"text": None}, 200, TEXT, b"null"),
    (".text", {"text": {"a": 1}}, 200, TEXT, b'{\n  "a": 1\n}'),
    (".text", [], 200, TEXT, b"[]"),
    (".http", {}, 204, "", b""),
    (".http", {"body": ""}, 204, "", b""),
    (".http", {"body": None}, 204, "", b""),
    (".http", {"body": "", "statusCode": 200, "headers": {"content-type": "text/css"}}, 200, "", b""),
    (".http", {"statusCode": 404}, 404, "", b""),
    (".http", {"statusCode": "418", "body": "x"}, 418, HTML, b"x"),
    (".http", {"statusCode": 201.0, "body": {}}, 201, "application/json", b"{}"),
    (".http", {"body": "<p>ü"}, 200, HTML, "<p>ü".encode()),
    (".http", {"body": {"a": 1}}, 200, "application/json", b'{"a":1}'),
    (".http", {"body": [1]}, 200, "application/json", b"[1]"),
    (".http", {"body": 5}, 200, "application/json", b"5"),
    (".http", {"body": False}, 200, "application/json", b"false"),
    (".http", {"body": {"a": 1}, "headers": {"Content-Type": "application/vnd.x+json"}}, 200,
     "application/vnd.x+json", b'{"a":1}'),
    (".http", {"body": "a,b", "headers": {"content-type": "text/csv"}}, 200, "text/csv; charset=UTF-8", b"a,b"),
    (".http", {"body": "x", "headers": {"content-type": "text/plain; charset=latin-1; a=b"}}, 200,
     "text/plain; a=b; charset=UTF-8", b"x"),
    (".http", {"body": "iVBO", "headers": {"Content-Type": "image/png"}}, 200, "image/png", b"\x89PN"),
    (".http", {"body": '{"a":1}', "headers": {"Content-Type": "application/json"}}, 200, "application/json",
     b'{"a":1}'),
    (".http", {"body": "eyJhIjoxfQ==", "headers": {"Content-Type": "application/json"}}, 200, "application/json",
     b'{"a":1}'),
    (".http", {"statusCode": 304, "body": "x"}, 304, "", b""),
]  # fmt: skip


@pytest.mark.parametrize(("extension", "result", "status", "kind", "body"), ROWS)
def test_the_extension_selects_the_form_of_the_result(extension, result, status, kind, body):
    assert shown(result, extension) == (status, kind, body)


REFUSED = [
    (".html", {"html": 5}, 400, "Response is not valid 'text/html'."),
    (".html", {"other": "x"}, 400, "Response is not valid 'text/html'."),
    (".html", [], 400, "Response is not valid 'text/html'."),
    (".svg", {"svg": {}}, 400, "Response is not valid 'image/svg+xml'."),
    (".text", {"other": 1}, 404, "Response does not include requested property."),
    (".http", [1], 400, "Response is not valid 'message/http'."),
    (".http", {"statusCode": True}, 400, "Response is not valid 'message/http'."),
    (".http", {"statusCode": "abc"}, 400, "Response is not valid 'message/http'."),
    (".http", {"statusCode": 200.5}, 400, "Response is not valid 'message/http'."),
    (".http", {"statusCode": 99}, 400, "Response is not valid 'message/http'."),
    (".http", {"statusCode": 101}, 400, "Response is not valid 'message/http'."),
    (".http", {"statusCode": 10**30}, 400, "Response is not valid 'message/http'."),
    (".http", {"headers": {"x": "y" * 70_000}}, 400, "Response is not valid 'message/http'."),
    (".http", {"headers": []}, 400, "Response is not valid 'message/http'."),
    (".http", {"headers": {"a": {}}}, 400, "Response is not valid 'message/http'."),
    (".http", {"headers": {"a": None}}, 400, "Response is not valid 'message/http'."),
    (".http", {"body": "x", "headers": {"content-type": "nothing"}}, 400,
     "Response did not specify a known content-type."),
    (".http", {"body": "not base64!", "headers": {"content-type": "image/png"}}, 400,
     "Response type in header did not match generated content type."),
    (".http", {"body": {"a": 1}, "headers": {"content-type": "text/html"}}, 400,
     "Response type in header did not match generated content type."),
]  # fmt: skip


@pytest.mark.parametrize(("extension", "result", "status", "text"), REFUSED)
def test_a_result_that_does_not_fit_the_extension_is_refused_with_the_reason(extension, result, status, text):
    assert refused(result, extension) == (status, text)


def test_an_application_error_follows_the_same_rules():
    error = Status.APPLICATION_ERROR
    assert shown({"error": {"statusCode": 403, "body": "no"}}, status=error) == (403, HTML, b"no")
    assert shown({"error": "broken"}, ".html", error) == (200, HTML, b"broken")
    assert shown({"error": "broken"}, ".text", error) == (200, TEXT, b"broken")
    assert shown({"error": {"a": 1}}, ".json", error) == (200, "application/json", b'{"a":1}')
    assert refused({"error": "broken"}, ".http", error) == (400, "Response is not valid 'message/http'.")
    assert refused({"error": "broken"}, ".json", error) == (400, "Response is not valid 'application/json'.")


@pytest.mark.parametrize("status", [Status.DEVELOPER_ERROR, Status.INTERNAL_ERROR])
def test_any_other_error_reveals_no_details(status):
    for extension in RENDERERS:
        assert refused({"error": "secret"}, extension, status) == (400, "There was an error processing your request.")


def headers_for(headers):
    made = web_response(Outcome(Status.SUCCESS, msgspec.json.encode({"headers": headers, "body": "x"}), 0), ".http")
    return [pair for pair in made.headers if pair[0] != b"content-type"]


def test_headers_may_be_scalars_and_lists():
    given = {"Set-Cookie": ["a=1; Path=/", "b=2"], "X-On": True, "X-N": 1.5, "X-Nested": [["a"], 2], "X-Ü": []}
    del given["X-Ü"]
    assert headers_for(given) == [
        (b"set-cookie", b"a=1; Path=/"),
        (b"set-cookie", b"b=2"),
        (b"x-on", b"true"),
        (b"x-n", b"1.5"),
        (b"x-nested", b"a"),
        (b"x-nested", b"2"),
    ]


@pytest.mark.parametrize("value", ["a\r\nSet-Cookie: b", "a\nb", "a\rb", "\x00", ["ok", "a\nb"], "\x7f"])
def test_a_header_cannot_contain_another(value):
    assert refused({"headers": {"x-a": value}}) == (400, "Response is not valid 'message/http'.")


@pytest.mark.parametrize("name", ["", "a b", "a:b", "a\r\nb", "ü", "a\x00"])
def test_a_headers_name_is_a_token(name):
    assert refused({"headers": {name: "x"}}) == (400, "Response is not valid 'message/http'.")


def test_an_action_cannot_set_headers_of_the_connection():
    names = ["Connection", "Content-Length", "Transfer-Encoding", "Keep-Alive", "Upgrade", "TE", "Trailer"]
    ours = ["X-Request-ID", "x-openwhisk-activation-id"]
    assert headers_for(dict.fromkeys([*names, *ours, "x-mine"], "1")) == [(b"x-mine", b"1")]


@pytest.mark.parametrize("name", ["Service-Worker-Allowed", "Clear-Site-Data", "Strict-Transport-Security", "Alt-Svc"])
def test_an_action_cannot_set_headers_for_the_whole_host(name):
    assert headers_for({name: "x"}) == []


SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=10)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner))
RESULTS = st.one_of(
    VALUES,
    st.fixed_dictionaries(
        {},
        optional={
            "statusCode": VALUES | st.integers(90, 700),
            "headers": VALUES | st.dictionaries(st.text(max_size=12) | st.just("Content-Type"), VALUES | st.text()),
            "body": VALUES,
            "error": VALUES,
            "text": VALUES,
            "html": VALUES,
        },
    ),
)
NAME, VALUE = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+"), re.compile(rb"[^\x00-\x08\x0a-\x1f\x7f]*")


@given(RESULTS, st.sampled_from(sorted(RENDERERS)), st.sampled_from(Status))
def test_any_result_becomes_valid_http(result, extension, status):
    try:
        made = web_response(Outcome(status, json.dumps(result).encode(), 0), extension)
    except Refusal as refusal:
        assert refusal.status in {400, 404}  # noqa: PT017 - either is an answer
        return
    assert 200 <= made.status < 600
    for name, value in made.headers:
        assert NAME.fullmatch(name)
        assert VALUE.fullmatch(value)
    assert isinstance(made.body, bytes)


@given(st.binary(max_size=40), st.sampled_from(sorted(RENDERERS)))
def test_a_result_that_is_not_even_json_is_not_a_500(result, extension):
    try:
        web_response(Outcome(Status.SUCCESS, result, 0), extension)
    except Refusal as refusal:
        assert refusal.status in {400, 404}  # noqa: PT017 - either is an answer
