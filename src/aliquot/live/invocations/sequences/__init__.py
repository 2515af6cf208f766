"""Calls that are more than one run: sequences and conductors.

The files here are pure: a `CompositionMachine` takes the ends of components and returns commands. Only `composer.py`
acts. It sits between the gateway and the service, and performs the machine's commands.
"""
