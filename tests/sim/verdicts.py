"""The two poison policies, judged from outside: the end of each rejected and each exhausted record
in the very step that rejects or exhausts it.

`rejected` and `exhausted` are drawn independently of each other, and change during a run. Known
here: the acknowledgements that were taken, the deliveries that were persisted, and the
changes of the step.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Set

from dispatcher.core.model import (
    Acknowledge,
    AckType,
    DeadLettered,
    Event,
    OperatorAct,
    OperatorVerb,
    PoisonPolicy,
    Policy,
    Reason,
)
from dispatcher.core.steps import AckResult, RetryNoted, RetryState, Step
from tests.sim.checkers import CheckFailure

_STATES = {
    PoisonPolicy.BLOCK: RetryState.PARKED,
    PoisonPolicy.DEAD_LETTER: RetryState.DEAD_LETTER,
}
# A member that said goodbye is not the record's fault; the others are no deliveries that failed.
_NO_FAILURES = {
    Reason.SESSION_CLOSED,
    Reason.MEMBER_LEFT,
    Reason.NOT_SENT,
    Reason.OPERATOR,
}


def check_verdicts(
    policy: Policy,
    event: Event,
    step: Step,
    deliveries: Mapping[int, int],
    settled: Set[int],
    owed: Container[int],
    nobody_takes: Callable[[int], bool],
) -> None:
    """`deliveries` and `settled`: as persisted after the step; `owed`: the log has them; for
    others no verdict counts once the window has heard of it. `nobody_takes`: no member that is
    there accepts the key. Raises CheckFailure.
    """
    noted = {change.offset: change for change in step.changes if isinstance(change, RetryNoted)}
    rejected = {each for each in _rejected(event, step) if each in noted or each in owed}
    for offset in rejected:
        _check_end("rejected", policy.rejected, offset, noted.get(offset), settled)
        if offset in noted and noted[offset].reason is not Reason.REJECTED:
            raise CheckFailure("Policy", f"{noted[offset]} was rejected")
    for offset, retry in noted.items():
        if offset in rejected or _is_told(event, retry):
            continue
        if _is_parked_again(retry) and nobody_takes(offset):
            continue
        ended = retry.state in _STATES.values()
        spent = deliveries.get(offset, 0) >= policy.deliveries_max
        if ended and not spent:
            raise CheckFailure("Policy", f"{retry} has deliveries left: {deliveries.get(offset)}")
        if ended:
            _check_end("exhausted", policy.exhausted, offset, retry, settled)
        elif spent and retry.state is RetryState.WAITING and not _comes_again(policy, retry):
            raise CheckFailure("Policy", f"{retry} is exhausted, and comes again")


def _rejected(event: Event, step: Step) -> set[int]:
    """Offsets whose REJECT was taken."""
    if not isinstance(event, Acknowledge):
        return set()
    (result,) = [effect for effect in step.effects if isinstance(effect, AckResult)]
    found: set[int] = set()
    for first, last, types in () if any(result.errors) else event.batches:
        kinds = types * (last - first + 1) if len(types) == 1 else types
        found |= {first + at for at, kind in enumerate(kinds) if kind == AckType.REJECT}
    return found


def _is_told(event: Event, noted: RetryNoted) -> bool:
    """The DLQ did not take it, or an operator sent it there: its end was decided before."""
    match event:
        case DeadLettered():
            return not event.durable and noted.offset in event.offsets
        case OperatorAct(verb=OperatorVerb.DEAD_LETTER):
            return noted.offset in event.offsets
        case _:
            return False


def _is_parked_again(noted: RetryNoted) -> bool:
    """An operator has asked for it."""
    return noted.state is RetryState.PARKED and noted.reason is Reason.OPERATOR


def _comes_again(policy: Policy, noted: RetryNoted) -> bool:
    """With prefetch a record may come back behind another that failed: that is no failure of it."""
    return noted.reason in _NO_FAILURES or policy.prefetch_per_key > 1


def _check_end(
    kind: str, said: PoisonPolicy, offset: int, noted: RetryNoted | None, settled: Set[int]
) -> None:
    state = None if noted is None else noted.state
    if state is not _STATES.get(said) or (said is PoisonPolicy.DROP) != (offset in settled):
        raise CheckFailure("Policy", f"{offset} is {kind}, the policy is {said}: {noted}")
