"""Concatenates lines into a text."""


def main(args):
    lines = args.get("lines") or []
    return {"lines": lines, "payload": "\n".join(map(str, lines))}
