"""Writes a line to its log."""


def main(args):
    print(f"hello {args.get('payload') or 'world'}!")
    return {}
