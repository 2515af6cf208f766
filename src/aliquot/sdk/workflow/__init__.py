"""Workflows in Python: the source of a function is read into the graph of a definition, neither traced nor replayed.

decorator.py    `@app.workflow`: runs here as plain Python, on the platform as the graph
reading.py      finds the source of the function, and reads it into a definition
statements.py   makes states of statements, `values.py` of expressions that call functions
pure.py         what remains: expressions of `aliquot.expressions`, with constants of the module put in
emission.py     names the states, and writes the definition in the Amazon States Language
here.py         `parallel`, `sleep` and `wait_for`, as they run in this process
"""
