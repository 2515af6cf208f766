"""Alarms on a real server, as clients make them: a trigger, a feed action, a rule. They survive a killed server."""

import re
import subprocess
import time
from datetime import UTC, datetime, timedelta

import httpx
import pytest
from awaiting import wait_until_idle

from aliquot.testing.server import LiveServer
from aliquot.testing.waiting import wait_until

EVERY_SECOND = "* * * * * *"


class Tenant:
    """A client that sends what the npm client and `wsk` send."""

    def __init__(self, server, key=None, **more):
        self.server, self.key = server, key or server.key
        user, _, secret = self.key.partition(":")
        base = f"{server.url}/api/v1/namespaces/"
        self.http = httpx.Client(base_url=base, auth=(user, secret), timeout=60, **more)

    def make_trigger(self, name, feed="alarm"):
        annotations = [{"key": "feed", "value": f"/whisk.system/alarms/{feed}"}]
        self.http.put(f"_/triggers/{name}", json={"annotations": annotations}).raise_for_status()

    def feed(self, event, trigger, feed="alarm", **params):
        """Status and result of the feed action."""
        body = {"lifecycleEvent": event, "triggerName": f"/_/{trigger}", "authKey": self.key, **params}
        options = {"blocking": "true", "result": "true"}
        answer = self.http.post(f"whisk.system/actions/alarms/{feed}", params=options, json=body)
        return answer.status_code, answer.json()

    def make_alarm(self, name, feed="alarm", **params):
        """Make an alarm, its trigger, and an action `NAME-seen` that the trigger invokes."""
        self.make_trigger(name, feed)
        self.make_rule(name)
        assert self.feed("CREATE", name, feed, **params) == (200, {"status": "success"})

    def make_rule(self, name):
        code = "def main(args):\n    return args"
        exec_ = {"kind": "python:3.11", "code": code}
        self.http.put(f"_/actions/{name}-seen", json={"exec": exec_}).raise_for_status()
        rule = {"trigger": f"/_/{name}", "action": f"/_/{name}-seen"}
        self.http.put(f"_/rules/{name}-rule", json=rule).raise_for_status()

    def seen(self, name):
        """The records of what the trigger has set off, newest first."""
        query = {"name": f"{name}-seen", "docs": "true", "limit": 200}
        return self.http.get("_/activations", params=query).raise_for_status().json()

    def wait_for(self, name, count):
        return wait_until(lambda: self.seen(name), lambda seen: len(seen) >= count, what=f"{count} firings of {name}")

    def is_quiet(self, name):
        """Nothing more comes of it: two seconds are two firings of what fires every second."""
        wait_until_idle(self.server)  # what had just gone off may still run
        before = len(self.seen(name))
        time.sleep(2)
        return len(self.seen(name)) == before


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with LiveServer(tmp_path_factory.mktemp("alarms") / "data") as server:
        yield server


@pytest.fixture(scope="module")
def tenant(server):
    tenant = Tenant(server)
    yield tenant
    tenant.http.close()


@pytest.fixture(scope="module")
def timed(tenant):
    """Three alarms that begin at one moment, so that it is waited for once."""
    start = soon()
    tenant.make_alarm("twice", cron=EVERY_SECOND, startDate=start, maxTriggers=2)
    tenant.make_alarm("single", "once", date=start, deleteAfterFire="rules")
    tenant.make_alarm("often", "interval", minutes=1, startDate=start)


def soon(seconds=5):
    """Not too soon: a date that has passed when the feed gets to see it would be refused."""
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def test_an_alarm_fires_its_trigger_until_it_is_deleted(tenant):
    tenant.make_alarm("tick", cron=EVERY_SECOND, trigger_payload={"name": "Odin"})
    seen = tenant.wait_for("tick", 2)
    assert seen[0]["response"]["result"] == {"name": "Odin"}
    assert seen[0]["start"] // 1000 > seen[1]["start"] // 1000
    fired = tenant.http.get("_/activations", params={"name": "tick", "docs": "true"}).json()
    assert fired[0]["response"]["result"] == {"name": "Odin"}
    assert tenant.feed("DELETE", "tick") == (200, {"status": "success"})
    assert tenant.is_quiet("tick")


def test_a_feed_can_be_read_changed_paused_and_resumed(tenant):
    tenant.make_alarm("life", cron="0 0 1 1 *", timezone="Europe/Berlin", trigger_payload='{"a": 1}')
    status, read = tenant.feed("READ", "life")
    assert status == 200
    assert read["config"] == {
        "name": "life",
        "namespace": "guest",
        "payload": {"a": 1},
        "cron": "0 0 1 1 *",
        "timezone": "Europe/Berlin",
    }
    assert read["status"]["active"] is True
    assert read["status"]["dateChangedISO"].endswith("Z")
    assert abs(read["status"]["dateChanged"] - time.time() * 1000) < 60_000
    assert tenant.feed("UPDATE", "life", cron=EVERY_SECOND, trigger_payload="text") == (200, {"status": "success"})
    assert tenant.wait_for("life", 1)[0]["response"]["result"] == {"payload": "text"}
    assert tenant.feed("PAUSE", "life") == (200, {"status": "success"})
    assert tenant.feed("READ", "life")[1]["status"]["reason"] == {"kind": "USER", "message": "Paused by its owner"}
    assert tenant.is_quiet("life")
    assert tenant.feed("UNPAUSE", "life") == (200, {"status": "success"})
    tenant.wait_for("life", len(tenant.seen("life")) + 1)
    tenant.feed("DELETE", "life")


@pytest.mark.usefixtures("timed")
def test_an_alarm_may_fire_a_number_of_times(tenant):
    tenant.wait_for("twice", 2)
    assert tenant.is_quiet("twice")
    status = tenant.feed("READ", "twice")[1]["status"]
    assert (status["active"], status["reason"]["message"]) == (
        False,
        "Automatically disabled after reaching max triggers",
    )


@pytest.mark.usefixtures("timed")
def test_once_is_once_and_may_clear_up_after_itself(tenant):
    tenant.wait_for("single", 1)
    wait_until(
        lambda: tenant.http.get("_/triggers/single"), lambda answer: answer.status_code == 404, what="the trigger to go"
    )
    assert tenant.http.get("_/rules/single-rule").status_code == 404
    assert len(tenant.seen("single")) == 1


@pytest.mark.usefixtures("timed")
def test_an_interval_begins_at_its_start(tenant):
    tenant.wait_for("often", 1)
    assert tenant.feed("READ", "often", "interval")[1]["config"]["minutes"] == 1


def test_an_alarm_ends_with_its_trigger_and_its_namesake_does_not_inherit_it(tenant):
    tenant.make_alarm("gone", cron=EVERY_SECOND)
    tenant.wait_for("gone", 1)
    tenant.http.delete("_/triggers/gone").raise_for_status()
    tenant.make_trigger("gone")
    tenant.http.put("_/rules/gone-rule?overwrite=true", json={"trigger": "/_/gone", "action": "/_/gone-seen"})
    assert tenant.is_quiet("gone")
    tenant.http.delete("_/triggers/gone").raise_for_status()
    assert tenant.feed("DELETE", "gone") == (200, {"status": "success"})  # clients delete the trigger first


@pytest.mark.parametrize(
    ("feed", "params", "error"),
    [
        ("alarm", {}, "alarms trigger feed is missing the cron parameter"),
        ("alarm", {"cron": "no"}, "cron pattern 'no' is not valid: it takes 5 fields, or 6 with seconds first, not 1"),
        ("alarm", {"cron": EVERY_SECOND, "timezone": "Mars"}, "Invalid timezone."),
        ("interval", {}, "interval trigger feed is missing the minutes parameter"),
        ("interval", {"minutes": "five"}, "the minutes parameter must be an integer"),
        ("once", {}, "alarms once trigger feed is missing the date parameter"),
        ("once", {"date": "tomorrow"}, "date parameter 'tomorrow' is not a valid Date"),
        ("once", {"date": 1}, "date parameter '1' must be in the future"),
    ],
)
def test_what_cannot_be_is_an_application_error(tenant, feed, params, error):
    tenant.http.put("_/triggers/bad?overwrite=true", json={})
    assert tenant.feed("CREATE", "bad", feed, **params) == (502, {"error": {"error": error}})


def test_who_may_not_is_told_so(tenant):
    failed = "Trigger authentication request failed."
    missing = tenant.feed("CREATE", "nowhere", cron=EVERY_SECOND)
    assert missing == (502, {"error": {"error": failed, "message": "trigger /guest/nowhere does not exist"}})
    assert tenant.feed("CREATE", "nowhere", cron=EVERY_SECOND, authKey="no:key")[1]["error"]["error"] == failed
    assert tenant.feed("CREATE", "x", authKey="")[1] == {"error": {"error": "no authKey parameter was provided"}}
    assert tenant.feed("CREATE", "x", triggerName="")[1] == {
        "error": {"error": "no trigger name parameter was provided"}
    }
    assert tenant.feed("DANCE", "x")[1] == {"error": "unsupported lifecycleEvent"}


def test_there_is_one_alarm_a_trigger(tenant):
    tenant.make_alarm("one", cron="0 0 1 1 *")
    assert tenant.feed("CREATE", "one", cron=EVERY_SECOND)[1] == {"error": {"error": "error creating alarm trigger."}}
    assert tenant.feed("READ", "one")[1]["config"]["cron"] == "0 0 1 1 *"
    tenant.make_trigger("none")
    error = {"error": {"error": "could not find trigger /guest/none in the database"}}
    for event in ("READ", "UPDATE", "PAUSE", "DELETE"):
        assert tenant.feed(event, "none")[1] == error


def test_alarms_are_for_their_own_namespace(server, tenant):
    tenant.make_alarm("mine", cron="0 0 1 1 *")
    other = Tenant(server, server.create_namespace("other"))
    for method in ("GET", "PUT", "DELETE"):
        assert other.http.request(method, "guest/alarms/mine", json={}).status_code == 403
    assert other.http.get("_/alarms/mine").status_code == 404
    other.http.close()


def test_a_namespace_that_may_not_fire_is_not_fired_for_and_goes_on_when_it_may(server):
    key = server.create_namespace("throttled")
    bound(server, "throttled", 0)
    other = Tenant(server, key)
    other.make_alarm("tick", cron=EVERY_SECOND)
    wait_until(server.log.read_text, lambda log: "alarm did not fire" in log, what="a refused alarm in the log")
    assert other.seen("tick") == []
    assert not re.search(r"^aliquot_alarms_missed_total 0", server.metrics(), re.MULTILINE)
    bound(server, "throttled", None)
    other.wait_for("tick", 1)
    other.feed("DELETE", "tick")
    other.http.close()


def bound(server, namespace, fires_per_minute):
    headers = {"authorization": f"Bearer {server.operator}"}
    url = f"{server.url}/operator/v1/namespaces/{namespace}"
    httpx.patch(url, headers=headers, json={"firesPerMinute": fires_per_minute}).raise_for_status()


def test_no_key_is_kept(server, tenant):
    tenant.make_alarm("secret", cron="0 0 1 1 *")
    secret = tenant.key.partition(":")[2].encode()
    assert not [path for path in server.data.glob("aliquot.db*") if secret in path.read_bytes()]


def test_alarms_go_on_after_a_kill(tmp_path):
    server = LiveServer(tmp_path / "data").start()
    tenant = Tenant(server)
    tenant.make_alarm("tick", cron=EVERY_SECOND)
    tenant.wait_for("tick", 1)
    date = time.time() + 3
    tenant.make_alarm("late", "once", date=int(date * 1000))
    server.kill()
    tenant.http.close()
    time.sleep(max(0, date - time.time()))
    with server:
        tenant = Tenant(server)
        seen = len(tenant.seen("tick"))
        tenant.wait_for("tick", seen + 2)
        assert len(tenant.wait_for("late", 1)) == 1  # its date came while no server ran
        tenant.feed("DELETE", "tick")
        assert tenant.is_quiet("tick")
        tenant.http.close()


def test_feeds_reach_a_gateway_whose_certificate_nobody_signed(tmp_path):
    certificate, key = tmp_path / "cert.pem", tmp_path / "key.pem"
    make = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    subprocess.run([*make, "-keyout", str(key), "-out", str(certificate)], check=True, capture_output=True)
    with LiveServer(tmp_path / "data", "--tls-cert", str(certificate), "--tls-key", str(key)) as server:
        tenant = Tenant(server, verify=False)
        tenant.make_alarm("tick", cron=EVERY_SECOND)
        tenant.wait_for("tick", 1)
        tenant.http.close()


def test_an_alarm_starts_a_workflow(tenant):
    definition = '{"StartAt": "A", "States": {"A": {"Type": "Pass", "End": true}}}'
    tenant.make_trigger("flowing")
    tenant.http.put("_/actions/flow", json={"exec": {"kind": "workflow", "code": definition}}).raise_for_status()
    rule = {"trigger": "/_/flowing", "action": "/_/flow"}
    tenant.http.put("_/rules/flowing-rule", json=rule).raise_for_status()
    payload = {"n": 1}
    made = tenant.feed("CREATE", "flowing", cron=EVERY_SECOND, trigger_payload=payload)
    assert made == (200, {"status": "success"})
    listed = wait_until(
        lambda: tenant.http.get("_/executions", params={"workflow": "flow", "status": "SUCCEEDED"}).json(),
        what="an execution that the alarm has started",
    )
    tenant.feed("DELETE", "flowing")
    found = tenant.http.get(f"_/executions/{listed[0]['executionId']}").json()
    assert payload.items() <= found["output"].items()
