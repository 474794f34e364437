"""Errors of the shells of offsets, made where Kafka or the disk answers."""

from __future__ import annotations


class OffsetsError(Exception):
    """One line with the fault and its place."""


class ClusterAway(OffsetsError):
    """A cluster does not answer, or answers with an error that passes by itself."""


class NotReadable(OffsetsError):
    """The cluster does not let this user read a topic that is needed."""


class LeaseNotSure(OffsetsError):
    """Another process may have the lease by now, so this one does not write."""


class CheckpointError(OffsetsError):
    """A Spark checkpoint that cannot be moved; the text says why."""
