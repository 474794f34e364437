"""`keyway group release`: its exit statuses."""

from __future__ import annotations

from tests.rig.rest_stand_in import keyway, stand_in


def test_an_act_that_a_node_may_not_have_made_has_exit_status_1() -> None:
    """So has its dry run: the records of that node are not shown."""
    record = {
        "topic": "orders",
        "partition": 0,
        "offset": 4,
        "key": "k",
        "key_hash": "0badcafe",
        "reason": "rejected",
        "deliveries": 1,
        "behind": 0,
        "since_ms": 0,
        "member_id": "m1",
    }
    silent = {"unanswered": [{"node": "b", "reason": "no answer in time"}]}
    done = {"topic": "orders", "partition": 0, "offsets": [4]}
    answers = {
        "/v1/parked?group=g": {"group": "g", "parked": [record], **silent},
        "/v1/parked/release": [
            {"group": "g", "action": "skip", "records": 1, "partitions": [done], **more}
            for more in (silent, {})
        ],
    }
    missing = "keyway: node b is missing here: no answer in time\n"
    left_out = "keyway: not all nodes have answered: what b has is left out\n"
    with stand_in(answers) as rest:
        command = ("group", "release", "g", "--all", "--action", "skip", "--admin", rest.address)
        code, out, err = keyway(*command)
        assert (code, err) == (1, missing + left_out)
        assert "skip: 1 record" in out
        code, out, err = keyway(*command, "--execute")
        assert (code, out, err) == (1, "skip: 1 record of orders-0\n", missing + left_out)
        assert keyway(*command, "--execute") == (0, "skip: 1 record of orders-0\n", "")
