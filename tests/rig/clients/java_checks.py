"""The output of the check programs in java/: one line per check, one per address that they saw."""

from __future__ import annotations

from dataclasses import dataclass

ADMIN = (
    "create_topic",
    "describe_cluster",
    "describe_topic_partitions",
    "describe_topics_by_id",
    "list_offsets",
    "delete_records",
    "configs",
    "group_offsets",
    "create_partitions",
    "describe_quorum",
    "producers_and_transactions",
    "features_and_log_dirs",
)


@dataclass(frozen=True, slots=True)
class Report:
    """The output of a check program."""

    checks: dict[str, str]
    addresses: dict[str, set[str]]


def report_of(output: str) -> Report:
    checks: dict[str, str] = {}
    addresses: dict[str, set[str]] = {}
    for line in output.splitlines():
        match line.split("\t"):
            case ["check", name, result]:
                checks[name] = result
            case ["address", api, address]:
                addresses.setdefault(api, set()).add(address)
            case _:
                continue
    return Report(checks, addresses)
