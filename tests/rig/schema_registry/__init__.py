"""A schema registry for tests that honours IMPORT mode: the measured answers of AxonOps's (the
matrix of docs/schemas.md), and no more. In memory; `python -m` serves it.
"""
