"""Bounds of the tree and of the copy header, each with its reason."""

from __future__ import annotations

LEVEL_MAX = 32  # one bit of the flags per level; the header writes them as 8 hex digits
CLUSTERS_MAX = 64  # a tree of more would need more levels than the flags have bits, if unbalanced
NAME_CHARS_MAX = 64  # of a cluster's name, which every copied record carries
TOPIC_CHARS_MAX = 249  # Kafka's own bound on topic names
# version, flags, seal, topic id, partition, offset, cluster, topic and the separators between them
COPY_HEADER_BYTES_MAX = 1 + 8 + 16 + 22 + 10 + 19 + NAME_CHARS_MAX + TOPIC_CHARS_MAX + 7
# Of one record. Nobody but a broken or hostile client writes more, and each one costs a hash.
COPY_HEADERS_MAX = 16
# Of the seals: the new one and those before it, whose copies are still retained. Each costs a hash.
SECRETS_MAX = 4
