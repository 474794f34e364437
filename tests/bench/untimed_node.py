"""`python -m tests.bench.untimed_node serve ...`: a node that does not time its clients' requests.

The other side of the rows about the cost of metrics (metrics_cost.py).
"""

from __future__ import annotations

import sys
from types import SimpleNamespace

from gateway.cli.main import app
from gateway.listen import connection


def main() -> None:
    # 0 is the time of a request that is not timed (gateway/core/forwarding/connection_state.py).
    setattr(connection, "time", SimpleNamespace(monotonic_ns=int))  # noqa: B010 - not exported
    app(sys.argv[1:])


if __name__ == "__main__":
    main()
