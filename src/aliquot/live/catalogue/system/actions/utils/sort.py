"""Sorts the lines of an array, or of a text that is split at a separator."""


def main(args):
    lines = args.get("lines") or []
    if not lines and "payload" in args:
        lines = str(args["payload"]).split(args.get("separator") or "\n")
    lines = sorted(lines, key=str)
    return {"lines": lines, "length": len(lines)}
