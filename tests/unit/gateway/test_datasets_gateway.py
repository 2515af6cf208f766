"""Datasets over HTTP: permissions, responses, and secrets that are never shown."""

import re
import shutil
from pathlib import Path

import pytest
from gateway_client import AS_OPERATOR, GONE, NS, gateway, on_a_loop

from aliquot.core.errors import InputError
from aliquot.learn.settings import LearnSettings
from aliquot.live.datasets.registry import DatasetRegistry
from aliquot.live.datasets.settings import read_fabric
from aliquot.live.gateway.http.refusal import Refusal
from aliquot.live.gateway.resources.warming import MAX_WARMINGS, OPERATOR, WarmingLimiter

SECRET = "hunter2-never-to-be-seen"  # noqa: S105 - of nobody
ALL, SEEN = "/operator/v1/datasets", "/api/v1/datasets"
BODY = {"url": "s3://lab/images"}


async def put(g, name, check="false", **body):
    return await g.say(
        "PUT", f"{ALL}/{name}", params={"check": check}, headers=AS_OPERATOR, auth=None, json={**BODY, **body}
    )


async def as_operator(g, method, path, **more):
    return await g.say(method, path, headers=AS_OPERATOR, auth=None, **more)


@on_a_loop
async def test_the_operator_adds_changes_lists_and_removes():
    async with gateway() as g:
        status, made = await put(g, "images", options={"anon": "true"})
        assert status == 200
        created = made.pop("created")
        assert made == {
            "name": "images", "origin": "s3", "url": "s3://lab/images", "options": ["anon"], "namespaces": None,
        }  # fmt: skip
        status, again = await put(g, "images", url="s3://lab/other")
        assert (status, again["url"], again["created"]) == (200, "s3://lab/other", created)
        assert [one["name"] for one in (await as_operator(g, "GET", ALL))[1]] == ["images"]
        assert (await as_operator(g, "DELETE", f"{ALL}/images"))[0] == 200
        assert await as_operator(g, "DELETE", f"{ALL}/images") == GONE
        assert await as_operator(g, "GET", ALL) == (200, [])


@on_a_loop
async def test_datasets_survive_a_restart():
    async with gateway() as g:
        await put(g, "kept", options={"key": SECRET}, namespaces=["guest"])
        await put(g, "gone")
        await as_operator(g, "DELETE", f"{ALL}/gone")
        again = DatasetRegistry(g.store)
        await again.load()
        (kept,) = again.all()
        assert (kept.name, kept.url, kept.options, kept.tenants) == ("kept", BODY["url"], {"key": SECRET}, ("guest",))


@on_a_loop
async def test_a_tenant_sees_its_datasets_without_their_addresses():
    async with gateway() as g:
        stranger = await g.beside("stranger")
        await put(g, "common", url="https://user:word@host/folder?sig=abc", options={"key": SECRET})
        await put(g, "own", namespaces=["guest"])
        status, listed = await g.say("GET", SEEN)
        assert status == 200
        assert [(one["name"], one["origin"]) for one in listed] == [("common", "https"), ("own", "s3")]
        assert all(set(one) == {"name", "origin", "created"} for one in listed)
        assert [one["name"] for one in (await stranger.say("GET", SEEN))[1]] == ["common"]
        assert await stranger.say("GET", f"{SEEN}/own") == GONE
        assert await stranger.say("POST", f"{SEEN}/own/warm", json={}) == GONE
        assert (await g.say("GET", f"{SEEN}/own"))[1]["trouble"] == "no storage agent runs here"


@on_a_loop
async def test_secrets_are_accepted_and_never_shown():
    async with gateway() as g:
        url = f"https://user:{SECRET}@host/folder?sig={SECRET}"
        answers = [
            await put(g, "secret", url=url, options={"key": SECRET}),
            await as_operator(g, "GET", ALL),
            await as_operator(g, "GET", f"{ALL}/secret"),
            await g.say("GET", SEEN),
            await g.say("GET", f"{SEEN}/secret"),
            await as_operator(g, "DELETE", f"{ALL}/secret"),
        ]
        assert [status for status, _ in answers] == [200] * 6
        assert SECRET not in str(answers)
        assert answers[0][1]["options"] == ["key"]


@pytest.mark.parametrize(
    ("name", "body", "field"),
    [
        ("-x", {}, "name: '-x' cannot name a dataset"),
        ("a%2Fb", {}, "name: 'a/b' cannot name a dataset"),
        ("..", {}, None),
        ("x", {"url": "relative/path"}, "url: it takes an absolute path"),
        ("x", {"url": "/a\nb"}, "url: it takes"),
        ("x", {"url": ""}, "url: it takes"),
        ("x", {"options": {"": "1"}}, "options: a name is empty"),
        ("x", {"options": {"a": "x" * 5000}}, "options: it takes at most 64"),
        ("x", {"namespaces": ["nobody"]}, "namespaces: there is no namespace 'nobody'; there are guest"),
        ("x", {"unknown": 1}, "The request content was malformed"),
        ("x", {"options": {"a": 1}}, "The request content was malformed"),
    ],
)
def test_a_wrong_dataset_is_refused_with_the_accepted_values(name, body, field):
    @on_a_loop
    async def refused():
        async with gateway() as g:
            status, text = await put(g, name, **body)
            assert status == 400 if field else status in {400, 404, 405}
            assert field is None or text.startswith(field)
            assert (await as_operator(g, "GET", ALL))[1] == []

    refused()


@on_a_loop
async def test_a_dataset_in_use_is_removed_only_by_force():
    async with gateway() as g:
        await put(g, "images")
        action = {
            "exec": {"kind": "python:3.11", "code": "def main(args): return args"},
            "annotations": [{"key": "datasets", "value": ["images"]}],
        }
        assert (await g.say("PUT", f"{NS}/actions/reader", json=action))[0] == 200
        status, text = await as_operator(g, "DELETE", f"{ALL}/images")
        assert status == 409
        assert text.startswith("functions use it: /guest/reader; ")
        assert (await as_operator(g, "DELETE", f"{ALL}/images", params={"force": "true"}))[0] == 200


@on_a_loop
async def test_a_dataset_of_a_deleted_namespace_is_not_shown_to_a_new_one_of_its_name():
    async with gateway() as g:
        await g.beside("passing")
        await put(g, "own", namespaces=["passing"])
        await as_operator(g, "DELETE", "/operator/v1/namespaces/passing")
        again = await g.beside("passing")
        assert await again.say("GET", SEEN) == (200, [])
        assert (await as_operator(g, "GET", ALL))[1][0]["namespaces"] == []
        assert await g.say("GET", SEEN) == (200, [])
        book = DatasetRegistry(g.store)
        await book.load()
        assert book.find("own").tenants == ()


@on_a_loop
async def test_tenants_can_neither_add_nor_remove_datasets():
    async with gateway() as g:
        for method in ("PUT", "GET", "DELETE"):
            assert (await g.say(method, f"{ALL}/x", json=BODY))[0] == 401
        for method in ("PUT", "DELETE"):
            assert (await g.say(method, f"{SEEN}/x", json=BODY))[0] == 405


@pytest.mark.parametrize(
    ("option", "text"),
    [
        ({"cache_size": "12 GX"}, "--cache-size: '12 GX' is not a size"),
        ({"cache_size": "10"}, "--cache-size: it takes at least 1MiB"),
        (
            {"eviction": "best"},
            "--cache-eviction: there is no 'best'; it takes cost_aware, gdsf, lecar, lfu, lru, s3fifo",
        ),
        ({"bandwidth": "fast"}, "--prefetch-bandwidth: 'fast' is not a size"),
        ({"cache_dir": Path("/dev/null/x")}, "--cache-dir: /dev/null/x cannot be used"),
        ({"learning": ["speed=9"]}, "--learning.speed: --learning has no such parameter; it has predictor, "),
        ({"learning": ["epochs=many"]}, "--learning.epochs: 'many' does not fit"),
        ({"learning": ["look_every_s=0"]}, "--learning.look_every_s: it takes more than 0"),
        ({"learning": ["epochs=0"]}, "--learning.epochs: it takes 1 or more"),
        (
            {"learning": ["predictor=oracle"]},
            "--learning.predictor: there is no 'oracle'; it takes auto, none, popular",
        ),
    ],
)
def test_wrong_options_of_up_are_refused_before_it_starts(tmp_path, option, text):
    usual = {"cache_size": None, "cache_dir": None, "bandwidth": None, "eviction": "lecar"}
    with pytest.raises(InputError, match=re.escape(text)):
        read_fabric(tmp_path, **usual | option)


def test_the_cache_has_a_tenth_of_the_free_disk_by_default(tmp_path):
    usual = read_fabric(tmp_path / "data", None, None, None, "lecar")
    assert 0.05 < usual.cache_bytes / shutil.disk_usage(tmp_path).free < 0.2
    assert usual.cache_directory == str(tmp_path / "data" / "fabric" / "cache")
    told = read_fabric(tmp_path, "2GiB", tmp_path / "cache", "0", "lru")
    assert (told.cache_bytes, told.cache_directory) == (2 * 2**30, str(tmp_path / "cache"))
    assert (told.prefetch_bytes_per_s, told.eviction) == (0, "lru")


def test_options_configure_the_learning(tmp_path):
    learning = ["predictor=markov2", "with_lstm=false", "least_sessions=3", "look_every_s=0.5"]
    told = read_fabric(tmp_path, None, None, None, "lecar", learning).learning
    assert (told.predictor, told.with_lstm, told.least_sessions, told.look_every_s) == ("markov2", False, 3, 0.5)
    assert told.keep_versions == LearnSettings().keep_versions


def test_concurrent_warmings_are_limited_for_a_namespace_but_not_for_the_operator():
    warmings = WarmingLimiter()
    ends = [warmings.begin("ann") for _ in range(MAX_WARMINGS)]
    with pytest.raises(Refusal, match="are being warmed for ann already") as refused:
        warmings.begin("ann")
    assert refused.value.status == 429
    warmings.begin("bob")()
    for _ in range(2 * MAX_WARMINGS):
        warmings.begin(OPERATOR)
    ends[0]()
    warmings.begin("ann")
