"""Splits a text into lines, or at a separator."""

import re


def main(args):
    if "payload" not in args:
        return {"error": "Expected an argument 'payload'."}
    payload = str(args["payload"])
    separator = args.get("separator")
    lines = payload.split(separator) if separator else re.split(r"\r?\n", payload)
    return {"lines": lines, "payload": args["payload"]}
