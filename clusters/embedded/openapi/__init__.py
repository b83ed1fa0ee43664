"""OpenAPI: what the served kinds look like, for `kubectl explain`, its validation, and clients that generate code."""

from clusters.embedded.openapi.documents import OpenApi

__all__ = ["OpenApi"]
