"""Where the gateway spends its CPU under keyed load: py-spy samples its process from outside.

Writes the folded stacks (for speedscope or flamegraph.pl) and a list of the costliest functions,
by themselves and with all they call. Compiled modules have no Python frames: their C functions
(CPyDef_...) are found by unwinding native stacks. Sampling stops the process for each sample, so
rates of a profiled run mean nothing.
"""

from __future__ import annotations

import re
import signal
import sys
from collections import Counter
from pathlib import Path

from gateway.embedded.process import start_child, stop_child, wait_until
from tests.bench.cases import PARTITIONS, Bench, finish
from tests.bench.load import drawn, load
from tests.rig.kafka import create_topic

SAMPLES_PER_SECOND = 200
START_S_MAX = 60.0  # reads the symbols of every library first
LISTED = 45
# A thread that waits for work; py-spy takes some of them for busy when it unwinds native stacks.
WAITING = ("_queue_SimpleQueue_get_impl (", "epoll_pwait (")
WAY_IN_SHARE = 0.85


def profile(bench: Bench, keys: int, members: int, folder: Path) -> Path:
    """Path of the list. Raises AssertionError with py-spy's words if it may not, or cannot,
    sample.
    """
    topic = f"bench-profile-{keys}"
    create_topic(bench.kafka.bootstrap_servers, topic, partitions=PARTITIONS)
    load(bench.kafka.bootstrap_servers, topic, drawn(bench.records, keys))
    folder.mkdir(parents=True, exist_ok=True)
    folded = folder / "profile.folded"
    folded.unlink(missing_ok=True)
    log = bench.directory / "py-spy.log"
    spy = start_child(
        [
            *(_py_spy(), "record", "--native", "--format", "raw", "--output", str(folded)),
            *("--rate", str(SAMPLES_PER_SECOND), "--duration", str(int(bench.run_s_max))),
            *("--pid", str(bench.gateway.pid)),
        ],
        log=log,
    )
    try:
        wait_until(
            lambda: spy.poll() is not None or "Sampling process" in log.read_text(),
            what="py-spy at work",
            deadline_s=START_S_MAX,
        )
        crowd = [
            *(sys.executable, "-m", "tests.bench.crowd", bench.gateway.bootstrap, topic, topic),
            *(str(bench.records), str(int(bench.run_s_max)), str(members)),
            f"max.poll.records={bench.max_poll_records}",
        ]
        said = finish(bench, crowd).strip()
        spy.send_signal(signal.SIGINT)
        spy.wait(START_S_MAX)
    finally:
        stop_child(spy)
    assert folded.exists(), f"py-spy: {log.read_text()}"
    title = f"{said}, {keys:,} keys on {PARTITIONS} partitions"
    path = folder / "profile.txt"
    path.write_text(top_list(folded.read_text().splitlines(), title))
    return path


def _py_spy() -> str:
    """Beside the interpreter: the virtual environment need not be on the PATH."""
    return str(Path(sys.executable).parent / "py-spy")


def top_list(stacks: list[str], title: str) -> str:
    """The costliest functions of folded stacks (`outer;...;inner COUNT`), as text."""
    alone, whole = costs(stacks)
    total = sum(alone.values())
    parts = [title, f"{total} samples"]
    # Functions on nearly every stack are the way in, and cost nothing themselves.
    inner = Counter({f: count for f, count in whole.items() if count < WAY_IN_SHARE * total})
    for heading, counter in (("by itself", alone), ("with its calls", inner)):
        parts += ["", heading]
        parts += [
            f"{100 * count / total:6.1f} %  {frame}" for frame, count in counter.most_common(LISTED)
        ]
    return "\n".join(parts) + "\n"


def costs(stacks: list[str]) -> tuple[Counter[str], Counter[str]]:
    """Samples of each function, all its lines together: as the innermost one, and anywhere on the
    stack (once each).
    """
    alone: Counter[str] = Counter()
    whole: Counter[str] = Counter()
    for line in stacks:
        if any(frame in line for frame in WAITING):
            continue
        names, _, count = line.rpartition(" ")
        frames = [re.sub(r":\d+\)$", ")", frame) for frame in names.split(";")]
        alone[frames[-1]] += int(count)
        for frame in set(frames):
            whole[frame] += int(count)
    return alone, whole
