"""Work in threads of its own while a block runs."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def meanwhile(*works: Callable[[threading.Event], object]) -> Iterator[None]:
    """Each work is to return soon after its event is set, which is when the block ends."""
    over = threading.Event()
    threads = [threading.Thread(target=work, args=(over,), daemon=True) for work in works]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
