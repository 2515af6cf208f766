"""The npm client's verbs on activations."""

import re
import time

import pytest
from npm_client import ClientError, needs_node

pytestmark = needs_node

SAYS = "def main(args):\n    print('said', args.get('n'))\n    return {'n': args.get('n')}"


@pytest.fixture(scope="module")
def records(client):
    """Three of one action, one of another, oldest first."""
    for name in ("says", "other"):
        client.actions.create({"name": name, "action": SAYS, "kind": "python:3.11"})
    made = []
    for n, name in enumerate(["says", "says", "other", "says"]):
        made.append(client.actions.invoke({"name": name, "blocking": True, "params": {"n": n}}))
        time.sleep(0.01)  # so that each has its own millisecond
    return made


def ids(items):
    return [item["activationId"] for item in items]


def test_a_record_is_there_the_moment_its_answer_is(client, records):
    record = client.actions.invoke({"name": "says", "blocking": True, "params": {"n": 9}})
    stored = client.activations.get(record["activationId"])
    assert [re.sub(r"^\S+ +", "", line) for line in stored.pop("logs")] == ["stdout: said 9"]
    assert record.pop("logs") == []
    assert stored == record
    assert client.activations.list({"name": "says", "limit": 1})[0]["activationId"] == record["activationId"]


@pytest.mark.parametrize("key", ["name", "activation", "activationId"])
def test_each_name_of_the_id_is_taken(client, records, key):
    asked = {key: records[0]["activationId"]}
    assert client.activations.get(asked)["response"]["result"] == {"n": 0}
    assert client.activations.get(records[0]["activationId"])["name"] == "says"


def test_logs_and_result_are_parts_of_the_record(client, records):
    id_ = records[1]["activationId"]
    (line,) = client.activations.logs({"activation": id_})["logs"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{1,9}Z +stdout: said 1", line)
    assert line.index("stdout:") == 31
    result = client.activations.result({"activation": id_})
    assert (result["result"], result["success"], result["status"]) == ({"n": 1}, True, "success")


def test_the_list_is_newest_first_and_brief(client, records):
    listed = client.activations.list()
    assert [id_ for id_ in ids(listed) if id_ in ids(records)] == ids(records)[::-1]
    brief = next(item for item in listed if item["activationId"] == records[0]["activationId"])
    assert set(brief) == {
        *("namespace", "name", "version", "publish", "annotations", "activationId"),
        *("start", "end", "duration", "statusCode"),
    }
    assert (brief["name"], brief["statusCode"]) == ("says", 0)


def test_filters_choose(client, records):
    assert ids(client.activations.list({"name": "other"})) == [records[2]["activationId"]]
    since, upto = records[1]["start"], records[2]["start"]
    assert ids(client.activations.list({"since": since, "upto": upto})) == ids(records[1:3])[::-1]
    assert ids(client.activations.list({"since": since, "upto": upto, "skip": 1, "limit": 1})) == ids(records[1:2])
    assert client.activations.list({"name": "other", "count": True}) == {"activations": 1}
    (whole,) = client.activations.list({"name": "other", "docs": True})
    assert whole["response"]["result"] == {"n": 2}
    assert client.activations.list({"name": "nobody"}) == []


@pytest.mark.parametrize(
    ("id_", "status", "text"),
    [
        ("0" * 32, 404, "The requested resource does not exist."),
        ("0" * 31, 400, "Activation id length is 31 but must be 32."),
        ("x" * 32, 400, "The activation id is not valid."),
    ],
)
def test_an_id_of_nothing_is_told_from_no_id(client, records, id_, status, text):
    for verb in (client.activations.get, client.activations.logs, client.activations.result):
        with pytest.raises(ClientError) as error:
            verb(id_)
        assert error.value.status == status
        assert text in error.value.text


def test_a_stranger_sees_none(client, stranger, records):
    assert stranger.activations.list() == []
    with pytest.raises(ClientError) as error:
        stranger.activations.get(records[0]["activationId"])
    assert error.value.status == 404
    with pytest.raises(ClientError) as error:
        stranger.activations.get({"activation": records[0]["activationId"], "namespace": "guest"})
    assert error.value.status == 403
