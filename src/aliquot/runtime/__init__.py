"""The code that runs on the sandboxes' side: zygotes, launchers, isolation. Standard library only, run by file path.

A function's environment need not have Aliquot installed and may be an older Python, from 3.9 on. So nothing here
imports another package of Aliquot. Modules import each other relatively, because the package is also loaded under
another name (see `zygote`).
"""
