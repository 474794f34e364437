"""Another configuration, in some runs: after a restart also the shape of the windows, which stays
as long as a process. It draws from sources of its own, as unkind.py.
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from dispatcher.core.model import EvictPolicy, JoinPolicy, Policy

RESHAPED = 0.35  # of the runs
SPANS = (1, 4, 16, 64, 128)


class Reshaping:
    def __init__(self, seed: int, policy: Policy) -> None:
        self._rng = Random(seed ^ 0x5BD1)
        self.on = self._rng.random() < RESHAPED
        self._rules = Random(seed ^ 0x3A7F)
        self._rules_on = self._rules.random() < RESHAPED
        self.span_max_ever = policy.span_max  # leases and retries may be of a larger span

    def restarted(self, policy: Policy) -> Policy:
        """A prefetch only grows: what is in flight of one key stays, and the checkers know one."""
        rng = self._rng
        if not self.on or rng.random() < 0.3:
            return policy
        prefetch = max(policy.prefetch_per_key, rng.choice((1, 1, 2, 4)))
        reshaped = replace(
            policy,
            span_max=rng.choice(SPANS),
            window_records=rng.choice((None, None, 3, 20)),
            bounded_load=rng.choice((None, 1.0, 1.25)),
            prefetch_per_key=prefetch,
        )
        self.span_max_ever = max(self.span_max_ever, reshaped.span_max)
        return self.retuned(reshaped)

    def retuned(self, policy: Policy) -> Policy:
        """May change also while a window is up."""
        if self._rules_on:
            joins = self._rules.choice(tuple(JoinPolicy))
            evicts = self._rules.choice(tuple(EvictPolicy))
            policy = replace(policy, join_policy=joins, on_evict=evicts)
        if not self.on:
            return policy
        return replace(policy, held_max=self._rng.choice((0, 3, 20, 1_000_000)))
