"""The attacks by name. `python -m tests.hostile.attacks NAME SECONDS TARGET-AS-JSON` runs one and
prints its deeds.
"""

from __future__ import annotations

import json
import sys

from tests.hostile.on_bytes import (
    answers_nobody_reads,
    byte_by_byte,
    configs_of_everything,
    half_requests,
    inflating_message,
    many_elements,
    more_clients_than_files,
    tiny_records,
)
from tests.hostile.on_groups import (
    comes_and_goes,
    late_and_gone,
    long_member_ids,
    many_groups_are_listed,
    names_of_no_topic,
    rejects_everything,
    sessions_of_strangers,
    two_connections,
)
from tests.hostile.on_operators import names_that_are_none, rules_without_end
from tests.hostile.target import Attack, Target

ATTACKS: dict[str, Attack] = {
    attack.__name__: attack
    for attack in (
        many_groups_are_listed,
        names_of_no_topic,
        sessions_of_strangers,
        comes_and_goes,
        long_member_ids,
        rejects_everything,
        two_connections,
        late_and_gone,
        tiny_records,
        inflating_message,
        configs_of_everything,
        answers_nobody_reads,
        half_requests,
        many_elements,
        byte_by_byte,
        more_clients_than_files,
        rules_without_end,
        names_that_are_none,
    )
}
# A single record or batch at its limit may hold the node up for longer.
AT_A_LIMIT = frozenset({"tiny_records", "inflating_message"})

# These make the node write about one group alone: its warnings are a few lines.
WRITE_LITTLE = frozenset({"rejects_everything"})

# A node is started with its usual limits but for these.
OPEN_FILES_MAX = {"more_clients_than_files": 512}


if __name__ == "__main__":
    name, seconds, target = sys.argv[1:]
    sys.stdout.write(ATTACKS[name](Target(**json.loads(target)), float(seconds)) + "\n")
