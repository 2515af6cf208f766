"""The feeds alarm, interval and once: they ask the platform to fire a trigger by the clock.

Whoever makes a trigger with one of these feeds invokes it with `lifecycleEvent`, `triggerName` and `authKey`, beside
the feed's own parameters. The platform has a resource for a trigger's alarm; this is its messenger.
"""

import base64
import json
import os
import ssl
import urllib.error
import urllib.parse
import urllib.request

METHODS = {"CREATE": "PUT", "READ": "GET", "UPDATE": "PUT", "DELETE": "DELETE", "PAUSE": "PUT", "UNPAUSE": "PUT"}
CRON = ("cron", "timezone", "startDate", "stopDate", "maxTriggers")
INTERVAL = ("minutes", "startDate", "stopDate", "maxTriggers")
ONCE = ("date", "deleteAfterFire")


def main(args):
    event = args.get("lifecycleEvent", "CREATE")
    if event not in METHODS:
        return {"error": "unsupported lifecycleEvent"}
    for key, called in (("authKey", "authKey"), ("triggerName", "trigger name")):
        if not args.get(key):
            return failed(f"no {called} parameter was provided")
    if event == "CREATE" and (missing := missing_of(args)):
        return failed(missing)
    return ask(event, alarm_of(args["triggerName"], event), args["authKey"], wish_of(args, event))


def missing_of(args):
    """What a new alarm cannot do without."""
    if args.get("fireOnce"):
        return None if args.get("date") else "alarms once trigger feed is missing the date parameter"
    if args.get("isInterval"):
        return None if args.get("minutes") else "interval trigger feed is missing the minutes parameter"
    return None if args.get("cron") else "alarms trigger feed is missing the cron parameter"


def wish_of(args, event):
    if event in ("PAUSE", "UNPAUSE"):
        return {"active": event == "UNPAUSE"}
    if event not in ("CREATE", "UPDATE"):
        return None
    names = ONCE if args.get("fireOnce") else INTERVAL if args.get("isInterval") else CRON
    wish = {name: args[name] for name in names if args.get(name)}
    if args.get("trigger_payload"):
        wish["payload"] = args["trigger_payload"]
    return wish


def alarm_of(trigger, event):
    """Where the platform has it. The namespace is the caller's own, whatever stands before the trigger's name."""
    name = trigger.split("/", 2)[-1] if trigger.startswith("/") else trigger
    host = os.environ["__OW_API_HOST"]
    host = host if "://" in host else f"https://{host}"
    change = "" if event == "CREATE" else "?overwrite=true"
    return f"{host}/api/v1/namespaces/_/alarms/{urllib.parse.quote(name, safe='')}{change}"


def ask(event, url, key, wish):
    headers = {"authorization": "Basic " + base64.b64encode(key.encode()).decode(), "content-type": "application/json"}
    body = None if wish is None else json.dumps(wish).encode()
    request = urllib.request.Request(url, body, headers, method=METHODS[event])
    # It speaks to its own platform, whose certificate may be one that nobody has signed.
    trusting = ssl.create_default_context()
    trusting.check_hostname = False
    trusting.verify_mode = ssl.CERT_NONE
    plain = urllib.request.ProxyHandler({})
    opener = urllib.request.build_opener(plain, urllib.request.HTTPSHandler(context=trusting))
    try:
        with opener.open(request, timeout=30) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            text = json.load(error)["error"]
        if error.code in (401, 403) or (error.code == 404 and event == "CREATE"):
            return failed("Trigger authentication request failed.", message=text)
        return failed(text)
    except OSError as error:
        return failed("the alarm service could not be reached", message=str(error))


def failed(text, **more):
    print("alarm:", text, more or "")
    return {"error": {"error": text, **more}}
