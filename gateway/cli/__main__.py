"""`python -m gateway.cli`: the `keyway` command without its script."""

from gateway.cli.main import main

main()
