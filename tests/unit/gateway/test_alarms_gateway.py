"""The endpoints of a trigger's alarm: requests, responses, and any possible body."""

import asyncio
import json

import pytest
from gateway_client import NS, gateway, on_a_loop
from hypothesis import given
from hypothesis import strategies as st

ALARM = f"{NS}/alarms/t"
YEARLY = {"cron": "0 0 1 1 *"}
DONE = (200, {"status": "success"})


async def trigger(client, name="t"):
    assert (await client.put(f"{NS}/triggers/{name}", json={})).status_code == 200


@on_a_loop
async def test_an_alarm_is_put_read_changed_and_deleted():
    async with gateway() as client:
        await trigger(client)
        wish = {"date": "2999-01-01T00:00:00Z", "deleteAfterFire": True, "payload": {"a": 1}}
        assert await client.say("PUT", ALARM, json=wish) == DONE
        status, read = await client.say("GET", ALARM)
        assert (status, read["config"]) == (200, {**wish, "deleteAfterFire": "true", "name": "t", "namespace": "guest"})
        assert set(read["status"]) == {"active", "dateChanged", "dateChangedISO"}
        assert await client.say("PUT", ALARM, json={"date": 99 * 10**12}) == (409, "error creating alarm trigger.")
        assert await client.say("PUT", f"{ALARM}?overwrite=true", json={"date": 99 * 10**12}) == DONE
        assert (await client.say("GET", ALARM))[1]["config"] == {
            "name": "t",
            "namespace": "guest",
            "payload": {"a": 1},
            "date": 99 * 10**12,
            "deleteAfterFire": "true",
        }
        assert await client.say("DELETE", ALARM) == DONE
        assert (await client.say("GET", ALARM)) == (404, "could not find trigger /guest/t in the database")


@on_a_loop
async def test_a_missing_trigger_or_alarm_is_a_404():
    async with gateway() as client:
        missing = (404, "trigger /guest/t does not exist")
        assert await client.say("PUT", ALARM, json=YEARLY) == missing
        assert await client.say("GET", ALARM) == missing
        assert await client.say("DELETE", ALARM) == DONE  # clients delete the trigger first
        await trigger(client)
        none = (404, "could not find trigger /guest/t in the database")
        assert await client.say("PUT", f"{ALARM}?overwrite=true", json={"timezone": "UTC"}) == none
        assert await client.say("DELETE", ALARM) == none
        assert await client.say("PUT", f"{ALARM}?overwrite=true", json=YEARLY) == DONE


@on_a_loop
async def test_an_action_of_the_same_name_is_not_a_trigger():
    async with gateway() as client:
        assert await client.say("PUT", f"{NS}/alarms/echo", json=YEARLY) == (404, "trigger /guest/echo does not exist")


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"cron": []}', b'{"startDate": true}', b'{"active": 1}'])
def test_a_body_of_another_shape_is_malformed(body):
    @on_a_loop
    async def check():
        async with gateway() as client:
            await trigger(client)
            status, text = await client.say("PUT", ALARM, content=body)
            assert status == 400
            assert text.startswith("The request content was malformed:\n")

    check()


texts = st.text(max_size=20) | st.sampled_from(
    ["2999-01-01", "* * * * *", "UTC", "0", "-1", "1e9", "9" * 400, "\ud800"]
)
values = st.none() | st.booleans() | texts | st.integers(-1, 10**15) | st.integers() | st.floats(allow_nan=False)
fields = ["cron", "timezone", "minutes", "date", "startDate", "stopDate", "maxTriggers", "deleteAfterFire", "payload"]
wishes = st.dictionaries(st.sampled_from([*fields, "active", "unknown"]), values, max_size=4)


@given(st.lists(wishes, min_size=1, max_size=4))
def test_any_body_gets_a_response(bodies):
    async def check():
        async with gateway() as client:
            await trigger(client)
            for body in bodies:
                for query in ("", "?overwrite=true"):
                    answer = await client.put(ALARM + query, content=json.dumps(body))
                    assert answer.status_code in {200, 400, 404, 409}, answer.text
                assert (await client.get(ALARM)).status_code in {200, 404}

    asyncio.run(check())
