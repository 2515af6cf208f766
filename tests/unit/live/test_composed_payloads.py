"""What components hand on: large or small, the same arrives; and what is meant to harm is not taken apart."""

import json
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Raw

from aliquot.live.invocations.sequences import payloads
from aliquot.live.store.records import Action, Exec, Pair

OBJECTS = st.dictionaries(st.text(max_size=3), st.integers() | st.text(max_size=3) | st.just({"a": []}), max_size=4)
BLANKS = st.sampled_from(["", " ", "\n\t "])


def spaced(value, blanks):
    return (blanks + json.dumps(value, indent=1 if blanks else None) + blanks).encode()


@given(OBJECTS, OBJECTS, BLANKS)
def test_large_objects_are_merged_as_small_ones_are(below, above, blanks):
    action = Action("guest", "a", "0.0.1", Exec("python:3.11"), parameters=tuple(Pair(k, v) for k, v in below.items()))
    arrived = []
    for large in (2**20, -1):
        with patch.object(payloads, "LARGE_PAYLOAD_BYTES", large):
            arrived.append(json.loads(payloads.with_state(spaced(below, blanks), spaced(above, blanks))))
            arrived.append(json.loads(payloads.with_defaults(action, spaced(above, blanks))))
    assert arrived == [{**below, **above}] * 4


def test_a_large_array_goes_as_it_is():
    action = Action("guest", "a", "0.0.1", Exec("python:3.11"), parameters=(Pair("p", 1),))
    array = b" [" + b"0," * 2**20 + b"1]"
    assert payloads.with_defaults(action, array) is array


@pytest.mark.parametrize("value", [b"[" + b"[]," * 2**21 + b"1]", b'"' + b"a" * 2**22 + b'"'])
def test_an_actions_name_that_is_none_is_not_read(value):
    assert payloads.component_name(Raw(value), "guest") is None
    assert len(payloads.shown(Raw(value))) < 1100


def test_a_name_may_be_written_in_escapes():
    name = "n" * 256
    escaped = "".join(f"\\u{ord(char):04x}" for char in f"/{name}/{name}/{name}")
    assert payloads.component_name(Raw(f'"{escaped}"'.encode()), "guest").leaf == name
