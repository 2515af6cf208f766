"""Counts the words of a text."""


def main(args):
    text = str(args.get("payload", ""))
    count = len(text.split())
    print(f"The message '{text}' has {count} words")
    return {"count": count}
