"""What all packages share: clusters and their YAML, questions to Kafka, the terminal, and the
metadata of commits.
"""
