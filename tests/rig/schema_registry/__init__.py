"""A schema registry for tests that honours IMPORT mode: what AxonOps's was measured to answer
(the matrix of docs/schemas.md), and no more. In memory; `python -m` serves it.
"""
