"""The feeds alarm, interval and once. They ask the platform to fire a trigger at set times.

A client that creates a trigger with one of these feeds invokes the feed with `lifecycleEvent`, `triggerName`, `authKey`
and the feed's own parameters. The feed sends them to the alarm resource of the platform's API.
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
            return error_result(f"no {called} parameter was provided")
    if event == "CREATE" and (missing := missing_parameter(args)):
        return error_result(missing)
    return send(event, alarm_url(args["triggerName"], event), args["authKey"], request_body(args, event))


def missing_parameter(args):
    """Return an error text if a new alarm lacks a required parameter."""
    if args.get("fireOnce"):
        return None if args.get("date") else "alarms once trigger feed is missing the date parameter"
    if args.get("isInterval"):
        return None if args.get("minutes") else "interval trigger feed is missing the minutes parameter"
    return None if args.get("cron") else "alarms trigger feed is missing the cron parameter"


def request_body(args, event):
    if event in ("PAUSE", "UNPAUSE"):
        return {"active": event == "UNPAUSE"}
    if event not in ("CREATE", "UPDATE"):
        return None
    names = ONCE if args.get("fireOnce") else INTERVAL if args.get("isInterval") else CRON
    body = {name: args[name] for name in names if args.get(name)}
    if args.get("trigger_payload"):
        body["payload"] = args["trigger_payload"]
    return body


def alarm_url(trigger, event):
    """Return the URL of the trigger's alarm. The namespace is always the caller's own."""
    name = trigger.split("/", 2)[-1] if trigger.startswith("/") else trigger
    host = os.environ["__OW_API_HOST"]
    host = host if "://" in host else f"https://{host}"
    change = "" if event == "CREATE" else "?overwrite=true"
    return f"{host}/api/v1/namespaces/_/alarms/{urllib.parse.quote(name, safe='')}{change}"


def send(event, url, key, body):
    headers = {"authorization": "Basic " + base64.b64encode(key.encode()).decode(), "content-type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, headers, method=METHODS[event])
    # The request goes to the function's own platform, whose certificate may be self-signed.
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    no_proxy = urllib.request.ProxyHandler({})
    opener = urllib.request.build_opener(no_proxy, urllib.request.HTTPSHandler(context=context))
    try:
        with opener.open(request, timeout=30) as answer:
            return json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            text = json.load(error)["error"]
        if error.code in (401, 403) or (error.code == 404 and event == "CREATE"):
            return error_result("Trigger authentication request failed.", message=text)
        return error_result(text)
    except OSError as error:
        return error_result("the alarm service could not be reached", message=str(error))


def error_result(text, **more):
    print("alarm:", text, more or "")
    return {"error": {"error": text, **more}}
