"""Arguments of web actions: one row for every kind of body, and properties that hold for any request."""

import json
from base64 import b64decode, b64encode
from urllib.parse import parse_qsl, urlencode

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aliquot.live.gateway.http.refusal import Refusal, refusal_for
from aliquot.live.gateway.web.arguments import RESERVED, WebRequest, arguments
from aliquot.live.invocations.errors import NOT_ALLOWED_PARAMETERS, PayloadError

NOTHING = frozenset()


def args_of(method="POST", raw=False, final=NOTHING, **request):
    headers = request.pop("headers", ())
    asked = WebRequest(method, headers, request.pop("path", ""), **request)
    return json.loads(msgspec.json.encode(arguments(asked, raw=raw, final=final)))


def body_of(content_type, body, *, raw=False):
    args = args_of(body=body, content_type=content_type, raw=raw)
    return {key: value for key, value in args.items() if key not in {"__ow_method", "__ow_headers", "__ow_path"}}


BODIES = [
    # content type, body, added arguments
    (b"application/json", b'{"a": {"b": [1, 2.50]}, "c": null}', {"a": {"b": [1, 2.5]}, "c": None}),
    (b"application/json; charset=utf-8", '{"a": "ü"}'.encode(), {"a": "ü"}),
    (b"APPLICATION/JSON", b' {"a": 1} ', {"a": 1}),
    (b"application/vnd.api+json", b'{"a": 1}', {"a": 1}),
    (b"application/json", b"[1, 2]", {"__ow_body": [1, 2]}),
    (b"application/json", b'"text"', {"__ow_body": "text"}),
    (b"application/json", b"", {}),
    (b"application/x-www-form-urlencoded", b"a=1&b=x+y%21&a=2&c", {"a": "2", "b": "x y!", "c": ""}),
    (b"text/plain", "grüß".encode(), {"__ow_body": "grüß"}),
    (b"text/plain; charset=utf-8", b"hi", {"__ow_body": "hi"}),
    (b"text/plain", b"\xff", {"__ow_body": "�"}),
    (b"application/xml", b"<a/>", {"__ow_body": "<a/>"}),
    (b"application/octet-stream", b"\x00\xff", {"__ow_body": "AP8="}),
    (b"image/png", b"png", {"__ow_body": "cG5n"}),
    (b"multipart/form-data; boundary=x", b"--x--", {"__ow_body": "LS14LS0="}),
    (None, b"what", {"__ow_body": "d2hhdA=="}),
    (b"not a type", b"what", {"__ow_body": "d2hhdA=="}),
]


@pytest.mark.parametrize(("content_type", "body", "added"), BODIES)
def test_a_body_becomes_arguments_by_its_type(content_type, body, added):
    assert body_of(content_type, body) == added


RAW_BODIES = [
    (b"application/json", b'{"a":1}', "eyJhIjoxfQ=="),
    (b"application/x-www-form-urlencoded", b"a=1", "a=1"),
    (b"text/plain", b"hi", "hi"),
    (b"application/octet-stream", b"hi", "aGk="),
    (None, b"", ""),
]


@pytest.mark.parametrize(("content_type", "body", "given"), RAW_BODIES)
def test_a_raw_action_gets_body_and_query_undecoded(content_type, body, given):
    args = args_of(raw=True, content_type=content_type, body=body, query=b"a=1&__ow_user=me&a=%20")
    assert args["__ow_body"] == given
    assert args["__ow_query"] == "a=1&__ow_user=me&a=%20"
    assert "a" not in args
    assert "__ow_user" not in args


def test_the_body_overrides_the_query_and_its_last_value_counts():
    args = args_of(query=b"a=1&a=2&b=3&empty=&alone", content_type=b"application/json", body=b'{"b": 4}')
    assert (args["a"], args["b"], args["empty"], args["alone"]) == ("2", 4, "", "")


def test_the_action_gets_method_path_and_headers():
    headers = ((b"x-one", b"1"), (b"x-one", b"2"), (b"cookie", b"a=1"), (b"cookie", b"b=2"), (b"content-length", b"0"))
    args = args_of("PATCH", path="/a%20b/c", headers=headers)
    assert args == {
        "__ow_method": "patch",
        "__ow_path": "/a%20b/c",
        "__ow_headers": {"x-one": "1, 2", "cookie": "a=1; b=2"},
    }


def test_the_action_gets_the_callers_namespace():
    assert args_of(user="guest")["__ow_user"] == "guest"
    assert "__ow_user" not in args_of()


def test_path_parameters_cannot_be_overridden():
    args = args_of(query=b"id=1", content_type=b"application/json", body=b'{"id": 2}', named={"id": "3"})
    assert args["id"] == "3"


@pytest.mark.parametrize("name", sorted(RESERVED))
def test_reserved_names_are_refused_everywhere(name):
    places = [
        {"query": f"{name}=x".encode()},
        {"content_type": b"application/json", "body": json.dumps({name: 1}).encode()},
        {"content_type": b"application/x-www-form-urlencoded", "body": f"{name}=x".encode()},
        {"named": {name: "x"}},
    ]
    for place in places:
        with pytest.raises(Refusal, match="not allowed") as refused:
            args_of(**place)
        assert (refused.value.status, refused.value.text) == (400, NOT_ALLOWED_PARAMETERS)


def test_final_parameters_are_refused_too():
    with pytest.raises(Refusal) as refused:
        args_of(query=b"fixed=x", final=frozenset(["fixed"]))
    assert refused.value.status == 400


@pytest.mark.parametrize("body", [b"{", b"nope", b'{"a":}', b"\xff", b'{"a": "\xff"}', b"[" * 100_000])
def test_malformed_json_is_a_400(body):
    with pytest.raises(PayloadError, match=r"^The request content was malformed:\n") as refused:
        args_of(content_type=b"application/json", body=body)
    assert refusal_for(refused.value).status == 400


def test_too_many_parameters_are_refused():
    with pytest.raises(Refusal) as refused:
        args_of(query=b"&".join([b"a=1"] * 5000))
    assert refused.value.status == 400


def test_a_form_that_would_block_the_event_loop_is_refused():
    with pytest.raises(Refusal) as refused:
        args_of(content_type=b"application/x-www-form-urlencoded", body=b"a=" + b"%41" * 400_000)
    assert refused.value.status == 413


TYPES = st.one_of(
    st.none(),
    st.binary(max_size=20),
    st.sampled_from([row[0] for row in BODIES if row[0]]),
)


@given(
    st.text(max_size=6),
    st.lists(st.tuples(st.binary(max_size=6), st.binary(max_size=6)), max_size=4),
    st.text(max_size=6),
    st.binary(max_size=20),
    st.binary(max_size=30),
    TYPES,
    st.booleans(),
)
def test_any_request_gives_arguments_or_a_refusal(method, headers, path, query, body, content_type, raw):
    asked = WebRequest(method, tuple(headers), path, query, body, content_type)
    try:
        args = arguments(asked, raw=raw, final=NOTHING)
    except Refusal as refusal:
        assert refusal.status == 400  # noqa: PT017 - either is an answer
        return
    assert json.loads(msgspec.json.encode(args))["__ow_path"] == path


@given(st.dictionaries(st.text(max_size=5), st.text(max_size=5), max_size=5))
def test_a_form_and_a_query_are_decoded_alike(fields):
    encoded = urlencode(fields).encode()
    if RESERVED.isdisjoint(fields):
        by_query = args_of(query=encoded)
        by_form = args_of(content_type=b"application/x-www-form-urlencoded", body=encoded)
        assert by_query == by_form
        assert {key: by_query[key] for key in fields} == dict(parse_qsl(encoded.decode(), keep_blank_values=True))


@given(st.binary(max_size=100))
def test_bytes_are_returned_unchanged(body):
    if body:
        args = args_of(content_type=b"application/octet-stream", body=body)
        assert b64decode(args["__ow_body"]) == body
        assert args["__ow_body"] == b64encode(body).decode()
