"""Greets a person by name."""


def main(args):
    greeting = f"Hello {args.get('name') or 'stranger'}!"
    print(greeting)
    return {"greeting": greeting}
