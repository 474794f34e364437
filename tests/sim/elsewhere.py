"""Records that wait for those of their key in another window (dispatcher/core/hold.py): holds that
the seed draws, and the check that nothing held goes out.
"""

from __future__ import annotations

from random import Random

from dispatcher.core.dispatcher import Core
from dispatcher.core.hold import Hold
from dispatcher.core.routing.hashes import key_hash32
from dispatcher.core.steps import Delivered, Step
from tests.sim.checkers import CheckFailure
from tests.sim.upstream import Log


def drawn(core: Core | None, log: Log, rng: Random) -> Hold | None:
    """Often one that lets some records go, at times none."""
    if core is None or rng.random() < 0.3:
        return None
    keys = sorted({key for key in log.records.values() if key is not None})
    some = rng.sample(keys, rng.randint(0, min(3, len(keys))))
    hashes = frozenset(int(key_hash32(key)) for key in some)
    return Hold(rng.randint(0, max(core.read_position, 1)), hashes)


def check_held(hold: Hold | None, log: Log, step: Step) -> None:
    if hold is None:
        return
    for effect in step.effects:
        for offset in effect.offsets if isinstance(effect, Delivered) else ():
            key = log.records.get(offset)
            if key is None:
                continue
            if offset >= hold.open_to or int(key_hash32(key)) in hold.keys:
                raise CheckFailure("Held", f"{offset} of {key!r} went out, {hold}")
