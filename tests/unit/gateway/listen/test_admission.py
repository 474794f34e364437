"""The number of clients that fit below the limit of open files."""

from __future__ import annotations

import sys

import pytest

from gateway.listen.admission import Admission, clients_max, rest_connections_max
from gateway.listen.limits import (
    DESCRIPTORS_PER_CLIENT,
    DESCRIPTORS_RESERVED,
    REST_CONNECTIONS_MAX,
)


@pytest.mark.parametrize("descriptors", [1, 2, 64, 256, 1_024, 65_536, 1_048_576])
def test_clients_leave_a_reserve(descriptors: int) -> None:
    taken = clients_max(descriptors) * DESCRIPTORS_PER_CLIENT
    assert clients_max(descriptors) >= 1
    if descriptors > DESCRIPTORS_PER_CLIENT:
        assert descriptors - taken >= min(DESCRIPTORS_RESERVED, descriptors // 2)

        rest = rest_connections_max(descriptors)
        assert 1 <= rest <= max(1, (descriptors - taken) // 2), "other files fit beside REST"


def test_a_process_without_a_limit_takes_everybody() -> None:
    assert clients_max(-1) == sys.maxsize
    assert rest_connections_max(-1) == REST_CONNECTIONS_MAX


def test_an_episode_lasts_until_clients_have_left() -> None:
    admission = Admission(clients_max=100)
    assert admission.admits(99)
    assert admission.ended(99) == 0, "nobody was refused"
    assert not admission.admits(100)
    assert not admission.admits(100)
    assert admission.refused == 2
    assert admission.ended(99) == 0, "one that leaves is no end: the next would be a new episode"
    assert admission.refused == 2
    assert admission.ended(95) == 2
    assert admission.refused == 0
