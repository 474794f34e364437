"""`python -m tests.sim.mutants`: plants bugs in copies of the core, says which checker finds each.

The core's own recount is taken out of the copies: what is tested here are the checkers that judge
from outside. A survivor means a missing checker, or code that is not needed.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SEEDS = 400


@dataclass(frozen=True, slots=True)
class Mutant:
    bug: str
    module: str
    before: str
    after: str


MUTANTS = (
    Mutant(
        "a stranger's acknowledgement is taken",
        "acknowledge",
        "lease.session is not session and not _left_behind(lease.session, by)",
        "False",
    ),
    Mutant(
        "a released record goes out again without back-off, and its key is not held",
        "retry",
        "        retry.held = True\n        heapq",
        "        retry.held = False\n        heapq",
    ),
    Mutant(
        "the cursor passes what is in flight",
        "window",
        "queues[cursor & mask] is None:\n            cursor += 1\n        if",
        "(queues[cursor & mask] is None or self.leases[cursor & mask]):\n"
        "            cursor += 1\n        if",
    ),
    Mutant(
        "redelivery forgets the attempts",
        "acquire",
        "        retry.state = RetryState.IN_FLIGHT\n",
        "        retry.state = RetryState.IN_FLIGHT\n        retry.deliveries = 0\n",
    ),
    Mutant(
        "an evicted member's records count as done",
        "flow",
        "reason is Reason.MEMBER_EVICTED and self.policy.on_evict is EvictPolicy.ACK",
        "reason is Reason.MEMBER_EVICTED",
    ),
    Mutant(
        "a member is woken once only",
        "flow",
        "            member.awake = awake\n",
        "            member.awake = awake or member.awake\n",
    ),
    Mutant(
        "settled bits are not persisted",
        "flow",
        "        changes.extend(self.window.take_dirty())",
        "        self.window.take_dirty()",
    ),
    Mutant("leases do not survive a restart", "restore", "    _leases(flow, snapshot)\n", ""),
    Mutant(
        "locks never time out",
        "membership",
        "in flow.book.overdue(now_ms):",
        "in flow.book.overdue(-1):",
    ),
    Mutant(
        "a key is released before its dead letter is durable",
        "poisoned",
        "        if event.durable:",
        "        if event.offsets:",
    ),
    Mutant(
        "a member may hold any number",
        "acquire",
        "wanted = min(event.records_max, room)",
        "wanted = event.records_max",
    ),
    Mutant("ended leases stay", "flow", "            self.book.close(lease)\n", ""),
    Mutant(
        "the read under way is waited for after the cursor has overtaken it",
        "flow",
        "            self.reading = False  # The read under way",
        "            self.reading = True  # The read under way",
    ),
)


def main() -> int:
    survivors = 0
    for mutant in MUTANTS:
        seed, finding = _hunt(mutant)
        survivors += not seed
        print(f"{mutant.bug}: {seed or 'SURVIVED'} {finding}", flush=True)  # noqa: T201
    return int(survivors > 0)


def _hunt(mutant: Mutant) -> tuple[str, str]:
    """The first seed that fails and what its checker said, or two empty strings."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for package in ("dispatcher", "tests"):
            shutil.copytree(
                ROOT / package, copy / package, ignore=shutil.ignore_patterns("*.so", "__pycache__")
            )
        core = copy / "dispatcher" / "core"
        _replace(core / f"{mutant.module}.py", mutant.before, mutant.after)
        _replace(core / "dispatcher.py", "        check(self._flow)", "        pass")
        hunt = subprocess.run(
            [sys.executable, "-m", "tests.sim", "--runs", str(SEEDS)],
            cwd=copy,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
    if hunt.returncode == 0:
        return "", ""
    seeds = [line.split()[0] for line in hunt.stdout.splitlines() if line.startswith("SEED=")]
    failures = [line for line in hunt.stderr.splitlines() if "Failure: " in line or "Error" in line]
    assert seeds, hunt.stderr
    return seeds[0], failures[-1].rpartition("Failure: ")[2][:90] if failures else ""


def _replace(path: Path, before: str, after: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count(before) == 1, f"{before!r} is not once in {path.name}"
    path.write_text(text.replace(before, after), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
