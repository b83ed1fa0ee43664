"""The rules of the Job API (batch/v1, Kubernetes v1.36) as pure functions on plain JSON-shaped dicts."""
