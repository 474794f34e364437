"""`python -m gateway.demo [--keep]`: the same as `keyway demo`."""

import sys

from gateway.demo.run import run_demo

if __name__ == "__main__":
    sys.exit(run_demo("--keep" in sys.argv[1:]))
