"""What runs on the sandboxes' side: zygotes, launchers, isolation. Standard library only, and run by file path.

A function's environment need not have Aliquot installed, and may be an older Python (3.9 on): nothing here imports
anything from the rest of the house, and siblings are imported relatively, because the package is also loaded under
another name (see `zygote`).
"""
