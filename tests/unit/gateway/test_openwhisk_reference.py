"""The reference page on OpenWhisk is true: its routes, limits and claims are compared with the gateway."""

import re

import pytest
from gateway_client import ACTIONS, NS, PUT, gateway, on_a_loop
from places import DOCS

from aliquot.core.errors import InputError
from aliquot.core.units import MIB
from aliquot.live.gateway.resources.openapi import web_endpoints
from aliquot.live.gateway.settings import GatewaySettings, Range, parse_limits

PAGE = (DOCS / "reference" / "openwhisk.md").read_text(encoding="utf-8")


def rows(title):
    """Return the cells of the table under a heading, without the header row."""
    section = PAGE.split(f"## {title}\n")[1].split("\n## ")[0]
    table = [[cell.strip() for cell in line.split(" | ")] for line in section.splitlines() if line.startswith("| ")]
    return [[cells[0].removeprefix("| "), *cells[1:-1], cells[-1].removesuffix(" |")] for cells in table[1:]]


def routes(title):
    return [
        (method, path.strip("`")) for methods, path, *_ in rows(title) for method in re.findall("`([A-Z]+)`", methods)
    ]


@on_a_loop
async def test_the_page_has_every_route_once():
    named = routes("OpenWhisk's verbs") + routes("Beyond OpenWhisk")
    assert len(named) == len(set(named))
    async with gateway() as g:
        assert set(named) == {(endpoint.method, endpoint.path) for endpoint in [*g.app.endpoints, *web_endpoints()]}


def test_the_page_has_the_default_settings():
    settings, checked = GatewaySettings(), set()
    for what, _, here, setting in rows("Limits and throttles"):
        for name in re.findall(r"`([a-z_]+)`", setting):
            value = getattr(settings, name)
            checked.add(name)
            if isinstance(value, Range):
                assert here == f"{value.minimum} to {value.maximum}, default {value.default}", what
            elif value is None:
                assert here == "no limit", what
            else:
                assert here.split()[0] == str(value // MIB if here.endswith("MiB") else value), what
    assert {"timeout_ms", "memory_mb", "payload_bytes", "sequence_length", "invocations_per_minute"} <= checked
    for name in checked - {"timeout_ms", "memory_mb", "logs_mb"}:
        assert getattr(parse_limits([f"{name}=1024"], "--limit"), name) == 1024


def test_a_limit_that_has_another_name_now_is_refused_with_the_new_name():
    with pytest.raises(InputError, match="code_per_namespace_bytes no longer exists; use kept_bytes"):
        parse_limits(["code_per_namespace_bytes=1GiB"], "--limit")


@pytest.mark.parametrize(
    ("body", "status", "text"),
    [
        (
            {"exec": {"kind": "java:8", "code": "x"}},
            400,
            "The specified runtime 'java:8' is not supported by this platform.",
        ),
        (
            {"exec": {"kind": "blackbox", "image": "acme/model"}},
            400,
            "The image 'acme/model' is not mapped to a runtime",
        ),
        ({**PUT, "limits": {"concurrency": 5}}, 400, "concurrency 5 exceeds allowed threshold of 1"),
    ],
)
@on_a_loop
async def test_refusals_are_worded_as_the_page_says(body, status, text):
    async with gateway() as g:
        told, error = await g.say("PUT", f"{ACTIONS}/a", json=body)
    assert told == status
    assert error.startswith(text)
    assert text.split(" by ")[0] in PAGE


@on_a_loop
async def test_aliases_of_kinds_are_as_the_page_says():
    async with gateway(nodejs=True) as g:
        for asked, kind in (
            ("python:3", "python:3.11"),
            ("python:default", "python:3.11"),
            ("nodejs:default", "nodejs:20"),
        ):
            assert f"`{asked}`" in PAGE
            body = {"exec": {"kind": asked, "code": "x"}}
            _, made = await g.say("PUT", f"{ACTIONS}/a", params={"overwrite": "true"}, json=body)
            assert made["exec"]["kind"] == kind


@on_a_loop
async def test_the_other_claims_of_the_page_are_true():
    async with gateway() as g:
        assert (await g.say("GET", "/api/v1/namespaces/guest"))[0] == 404
        _, limits = await g.say("GET", f"{NS}/limits")
        unlimited = {"invocationsPerMinute", "concurrentInvocations", "firesPerMinute", "maxActionInstances"}
        assert {limits[name] for name in unlimited} == {2147483647}
        _, host = await g.say("GET", "/")
        assert host["limits"]["actions_per_minute"] == 2147483647
        _, made = await g.say("PUT", f"{ACTIONS}/few", json={**PUT, "limits": {"instances": 3}})
        assert made["limits"]["instances"] == 3
        assert (await g.say("PUT", f"{ACTIONS}/x", json={**PUT, "annotations": [{"key": "gpu-share", "value": 1.5}]}))[
            0
        ] == 400
