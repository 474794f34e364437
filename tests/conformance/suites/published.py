"""The results as they are kept, and the page that shows them."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.conformance.suites.compared import Compared
from tests.conformance.suites.front import Setting
from tests.conformance.suites.suite import Suite
from tests.rig.gateway_process import REPOSITORY

RESULTS = REPOSITORY / "tests" / "conformance" / "results.json"
PAGE = REPOSITORY / "docs" / "conformance.md"
COLUMNS = ((1, False), (1, True), (3, False), (3, True))
HEADS = ("1 broker", "1 broker, TLS", "3 brokers", "3 brokers, TLS")

_HEAD = """\
# Conformance

Public test suites and programs, unmodified, run on a fresh Kafka and on a fresh Kafka with a fresh
gateway before it. What counts is the difference: a test that fails both ways is Kafka's or the
suite's own matter. `make campaign NAME=conformance` runs them and writes this page.

A cell says how many tests passed through the gateway, of those that ran. "all alike": each test
ended as it did without the gateway; where some did not, "direct" says how many passed without it.
"no TLS": the suite has no setting to reach a given Kafka over TLS. "needs 3": it needs three
brokers. A dash: it would run there, and has not been run.

Some rows are no suites of others but their programs in a scene:

- Changes upstream: leaders move under Kafka's producer and consumer, which may ask for metadata
  twice a minute: after most changes they go on at once, since the answers name the new leader
  (KIP-951); after some they wait, direct as well. Three brokers are upgraded one by one under a
  producer and consumers of three kinds, and no acknowledged record is lost or twice in the log.
- Streams, Connect: Streams' word count with either guarantee, killed once with exactly once;
  connect-standalone from a file to a file; MirrorMaker 2 between two Kafkas, a gateway before each.
"""


@dataclass(frozen=True, slots=True)
class Cell:
    suite: str
    kafka: str
    brokers: int
    tls: bool
    passed: int
    passed_direct: int
    run: int
    failing_direct_too: int
    explained: tuple[tuple[str, str], ...]  # test, reason
    unexplained: tuple[tuple[str, str], ...]  # test, the two verdicts

    @property
    def place(self) -> tuple[str, str, int, bool]:
        return (self.suite, self.kafka, self.brokers, self.tls)

    def text(self) -> str:
        differ = len(self.explained) + len(self.unexplained)
        if not differ:
            return f"{self.passed} of {self.run}, all alike"
        verb = "differs" if differ == 1 else "differ"
        return f"{self.passed} of {self.run} (direct {self.passed_direct}), {differ} {verb}"


def cell(suite: str, setting: Setting, found: Compared) -> Cell:
    return Cell(
        suite,
        setting.kafka,
        setting.brokers,
        setting.tls,
        found.passed,
        found.passed_direct,
        found.run,
        found.failing_direct_too,
        tuple((difference.test, difference.reason or "") for difference in found.explained),
        tuple(
            (difference.test, f"direct {difference.direct}, through {difference.through}")
            for difference in found.unexplained
        ),
    )


def publish(suite: str, setting: Setting, found: Compared, listed: Sequence[Suite]) -> None:
    new = cell(suite, setting, found)
    cells = [known for known in read(RESULTS) if known.place != new.place] + [new]
    cells.sort(key=lambda known: known.place)
    RESULTS.write_text(json.dumps([asdict(known) for known in cells], indent=1) + "\n")
    PAGE.write_text(page(cells, listed))


def read(path: Path) -> list[Cell]:
    if not path.exists():
        return []
    rows = json.loads(path.read_text())
    pairs = ("explained", "unexplained")
    return [
        Cell(**{**row, **{name: tuple(map(tuple, row[name])) for name in pairs}}) for row in rows
    ]


def page(cells: Sequence[Cell], listed: Sequence[Suite]) -> str:
    by_name = {suite.name: suite for suite in listed}
    by_place = {known.place: known for known in cells}
    lines = [_HEAD, f"| Suite | Kafka | {' | '.join(HEADS)} |", "|---" * (2 + len(HEADS)) + "|"]
    for suite, kafka in sorted({(known.suite, known.kafka) for known in cells}):
        texts = []
        for brokers, tls in COLUMNS:
            known = by_place.get((suite, kafka, brokers, tls))
            setting = Setting(kafka, brokers, tls=tls)
            texts.append(
                known.text() if known is not None else _absent(by_name.get(suite), setting)
            )
        lines.append(f"| {suite} | {kafka} | {' | '.join(texts)} |")
    explained = sorted({(known.suite, *pair) for known in cells for pair in known.explained})
    if explained:
        lines += ["", "## What differs, and why", "", "| Suite | Test | Why |", "|---|---|---|"]
        lines += [f"| {suite} | `{test}` | {why} |" for suite, test, why in explained]
    open_ = sorted({(known.suite, *pair) for known in cells for pair in known.unexplained})
    if open_:
        lines += ["", "## What differs and is not explained yet", ""]
        lines += ["| Suite | Test | Verdicts |", "|---|---|---|"]
        lines += [f"| {suite} | `{test}` | {_of_table(said)} |" for suite, test, said in open_]
    return "\n".join(lines) + "\n"


def _absent(suite: Suite | None, setting: Setting) -> str:
    return (suite and suite.lacks(setting)) or "—"


def _of_table(text: str) -> str:
    return text.replace("|", "/").replace("<", "(").replace(">", ")")[:200]
