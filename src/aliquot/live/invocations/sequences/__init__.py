"""Calls that are more than one run: sequences and conductors.

The files here decide and touch nothing: a `Machine` is told how components ended and says what comes next. Only
`composer.py` acts: it stands between the gateway and the service, and has done what the machine says.
"""
