"""`keyway group delete`: what it tells before."""

from __future__ import annotations

import pytest

from tests.rig.rest_stand_in import keyway, stand_in


@pytest.mark.parametrize(
    ("parked", "lag", "says"),
    [
        (3, 1_000_000, "3 parked records, a lag of 1000000 records"),
        (None, None, "an unknown number of parked records, a lag of an unknown number of records"),
    ],
)
def test_what_goes_with_a_group_is_told_before(
    parked: int | None, lag: int | None, says: str
) -> None:
    group = {
        "group": "g",
        "state": "Empty",
        "members": 0,
        "topics": [],
        "windows": 0,
        "epoch": 0,
        "parked": parked,
        "lag": lag,
        "memberships": [],
        "partitions": [],
    }
    with stand_in({"/v1/groups/g": group}) as rest:
        code, out, _ = keyway("group", "delete", "g", "--admin", rest.address)
    assert code == 0
    assert f"g has 0 members and state of 0 partitions: {says};" in out
