"""Limits as an operator writes them."""

import pytest

from aliquot.core.errors import InputError
from aliquot.core.units import MIB
from aliquot.live.gateway.settings import GatewaySettings, Range, parse_limits
from aliquot.testing.server import LiveServer


def test_what_is_not_said_stays():
    assert parse_limits([], "--limit") == GatewaySettings()


def test_sizes_numbers_flags_and_ranges_are_read():
    settings = parse_limits(
        [
            "payload_bytes=2MiB",
            "timeout_ms.most=5000",
            "timeout_ms.usual=1000",
            "invocations_per_minute=60",
            "concurrent_invocations=none",
            "metrics_for_operator_only=true",
            "head_s=2.5",
        ],
        "--limit",
    )
    assert settings.payload_bytes == 2 * MIB
    assert settings.timeout_ms == Range(100, 5000, 1000)
    assert settings.invocations_per_minute == 60
    assert settings.concurrent_invocations is None
    assert settings.metrics_for_operator_only is True
    assert settings.head_s == 2.5


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("payload=1", "--limit: there is no payload; there are timeout_ms.(least, most, usual), "),
        ("api_host=x", "--limit: there is no api_host"),
        ("timeout_ms=5", "--limit: there is no timeout_ms"),
        ("timeout_ms.best=5", "--limit: there is no timeout_ms.best"),
        ("payload_bytes.most=5", "--limit: there is no payload_bytes.most"),
        ("payload_bytes=much", "--limit: payload_bytes: 'much' is not a size, such as 16GiB"),
        ("invocations_per_minute=few", "--limit: invocations_per_minute: 'few' does not fit"),
        (
            "invocations_per_minute=-1",
            "--limit: invocations_per_minute: '-1' does not fit: it takes a number from 0 on",
        ),
        ("sequence_length=none", "--limit: sequence_length: 'none' does not fit"),
        ("memory_mb.most=1", "--limit: memory_mb: least (128), usual (256) and most (1) are not in order"),
        ("memory_mb", "--limit: 'memory_mb' is not of the form name=value"),
    ],
)
def test_mistakes_are_named(text, told):
    with pytest.raises(InputError) as caught:
        parse_limits([text], "--limit")
    assert str(caught.value).startswith(told)


def test_a_server_keeps_to_them(tmp_path):
    limits = ("payload_bytes=4KiB", "timeout_ms.most=70000", "sequence_length=2", "invocations_per_minute=3")
    with LiveServer(tmp_path / "data", *(word for limit in limits for word in ("--limit", limit))) as server:
        server.deploy("large", "def main(args): return {'x': 'y' * args.get('n', 0)}")
        with server.client() as client:

            def call(body):
                return client.post("actions/large", params={"blocking": "true", "result": "true"}, json=body)

            assert call({"x": "y" * 5000}).status_code == 413
            assert "Request larger than allowed" in call({"x": "y" * 5000}).json()["error"]
            assert call({"n": 5000}).status_code == 502
            body = {"exec": {"kind": "python:3.11", "code": ""}, "limits": {"timeout": 80_000}}
            refused = client.put("actions/long", json=body)
            assert "duration 80000 milliseconds exceeds allowed threshold of 70000 milliseconds" in refused.text
            sequence = {"exec": {"kind": "sequence", "components": ["/_/large"] * 3}}
            assert "Too many actions in the sequence." in client.put("actions/three", json=sequence).text
            statuses = [call({}).status_code for _ in range(8)]
            assert 429 in statuses
            assert client.get("limits").json()["invocationsPerMinute"] == 3
