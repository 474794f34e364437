"""A version is taken for absent only if every answer of the last minute said so."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from schema_dist.core.absences import Absences, Presence
from schema_dist.core.limits import ABSENT_LOOKS_MIN, ABSENT_MS_MIN, LOOK_MS_MAX
from schema_dist.core.model import SubjectVersion, Version

PLACE: SubjectVersion = ("a-value", Version(1))
answers = st.lists(
    st.tuples(
        st.integers(0, 2 * LOOK_MS_MAX) | st.integers(0, ABSENT_MS_MIN // 2),
        st.sampled_from([*Presence, None]) | st.just(Presence.GONE),
    ),
    max_size=30,
)


@given(answers, st.integers(0, 2 * LOOK_MS_MAX))
def test_absence_is_what_every_answer_of_the_last_minute_said(
    given_answers: list[tuple[int, Presence | None]], later_ms: int
) -> None:
    absences = Absences()
    absences.ask_for([PLACE])
    times = list(accumulate(pause for pause, _ in given_answers))
    said = [answer for _, answer in given_answers]
    for at, answer in zip(times, said, strict=True):
        absences.answered(PLACE, answer, at)
    now = (times[-1] if times else 0) + later_ms
    found = absences.confirmed(now).get(PLACE)
    # Judged from the end: the run of equal answers without too long a silence.
    run = 0
    while run < len(said) and said[-1 - run] is said[-1]:
        run += 1
        if run < len(said) and times[-run] - times[-run - 1] > LOOK_MS_MAX:
            break
    absent = (
        bool(said)
        and said[-1] in (Presence.GONE, Presence.DELETED)
        and run >= ABSENT_LOOKS_MIN
        and times[-1] - times[-run] >= ABSENT_MS_MIN
        and later_ms <= LOOK_MS_MAX
    )
    assert found is (said[-1] if absent else None)
