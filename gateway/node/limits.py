"""Bounds of the process. Units are in the names."""

from __future__ import annotations

TRIM_READ_BYTES_MIN = 32 * 1024 * 1024  # read, since memory was last given back to the system
STOP_S_MAX = 10.0  # to persist and commit at stop; the store has the rest
GC_ALLOCATIONS = 10_000  # between collections of young objects: of 50,000 one took 25 ms
HEALTH_STORE_S_MAX = 1.0  # a probe's wait for Redis; kubelet gives one second by default
PRIMARY_LOOK_S = 1.0  # from one question to the Sentinels who is primary to the next
EVICTION_LOOK_S = 60.0  # from one look whether Redis deletes keys on its own to the next
LOOP_LOOK_S = 0.1  # from one look at the event loop's delay to the next
LOOP_DELAY_BUCKETS_S = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5)
VIEW_RETRY_S_MIN = 1.0  # until a registry view that ended is started again; doubles
VIEW_RETRY_S_MAX = 30.0  # a port that becomes free is found within it
VIEW_LASTED_S_MIN = 60.0  # a view that ran so long is started again without the doubled pause
VIEW_SILENT_S_MAX = 30.0  # a view says a line each second; after this silence it is ended
VIEW_OLD_S_MIN = 15.0  # a view that cannot read its source for so long is a trouble
VIEW_STOP_S_MAX = 5.0  # for the view to end by itself
VIEW_BEAT_BYTES_MAX = 4096  # of such a line
WORKER_LOOK_S = 0.1  # from one look whether a worker lives to the next
WORKER_RETRY_S_MIN = 0.5  # until a worker that ended is started again; doubles
WORKER_RETRY_S_MAX = 30.0
WORKER_LASTED_S_MIN = 60.0  # a worker that ran so long is started again without the doubled pause
WORKER_STOP_S_MAX = 30.0  # for a worker to hand over, drain and commit
WORKERS_MAX = 16
DOCTOR_ANSWER_MS_MAX = 5_000  # of one question of `keyway doctor`
DOCTOR_NODES_MAX = 64  # others that are asked
DOCTOR_PINGS = 10  # of Redis; the median counts
