"""`python -m gateway.demo [--keep]`: what `keyway demo` does."""

import sys

from gateway.demo.run import run_demo

if __name__ == "__main__":
    sys.exit(run_demo("--keep" in sys.argv[1:]))
