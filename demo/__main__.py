"""`python -m demo [--keep]`, in a checkout: real flights through a real Kafka and the gateway."""

import sys

from demo.run import run_demo

if __name__ == "__main__":
    sys.exit(run_demo("--keep" in sys.argv[1:]))
