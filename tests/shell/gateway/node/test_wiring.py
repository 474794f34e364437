"""The order in which the parts of a node start; they end in the reverse order."""

from __future__ import annotations

from tests.rig.metric_names import parts


def test_members_hear_of_new_owners_while_the_server_still_answers() -> None:
    names = [part.name for part in parts()]
    assert names.index("farewell") > names.index("listen")


def test_no_client_comes_before_hidden_partitions_are_known() -> None:
    """A supervisor that asks REST is answered meanwhile."""
    names = [part.name for part in parts()]
    assert names.index("rest") < names.index("repartitions_known") < names.index("listen")
