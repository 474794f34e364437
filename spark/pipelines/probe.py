"""A pipeline tried on the newest records of its source, for `check` and for the start of `run`."""

from __future__ import annotations

from keyway.clusters.config import ConfigError
from spark.pipelines.check import PROBE_RECORDS, DrySchemas, Findings, tried
from spark.pipelines.config import Pipeline, PipelineError
from spark.pipelines.sample import SampleError, newest_records
from spark.transforms.registry import RegistryError, registry_of

FAILURES = (PipelineError, SampleError, RegistryError, ConfigError)


def dry_schemas(pipeline: Pipeline) -> DrySchemas | None:
    registry = pipeline.plan.registry
    return None if registry is None else DrySchemas(registry_of(registry))


def probed(
    pipeline: Pipeline, schemas: DrySchemas | None, records: int = PROBE_RECORDS
) -> Findings:
    """`records` 0, or a file without a source: no record is read. Raises FAILURES."""
    source = pipeline.config.source
    if source is None or records == 0:
        return tried(pipeline, (), schemas)
    sample = newest_records(source.cluster("source"), source.topic, max(records, PROBE_RECORDS))
    return tried(pipeline, sample, schemas)


def require_paths(pipeline: Pipeline, findings: Findings) -> None:
    """Raises PipelineError for paths that lead nowhere: a mask there would hide nothing."""
    if findings.faults:
        raise PipelineError(pipeline.path, findings.faults)
