"""Logs: one line per thing that happened, as JSON for machines or readable for people, on stdout.

What is bound with `structlog.contextvars` (a controller binds its name and the key for each reconcile; a client's
user may bind the cluster and the uid) is on every line that is written inside, whoever writes it, our libraries
included.
"""

import logging
import sys
from typing import Any, Literal

import orjson
import structlog

from .terminal import printable

LogFormat = Literal["json", "text"]


def configure_logging(log_format: LogFormat = "json", level: str = "info") -> None:
    """Set up logging for the whole process. Call it once, first."""
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.stdlib.add_logger_name,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    last: list[structlog.typing.Processor] = (
        [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(_dumps)]
        if log_format == "json"
        else [
            structlog.processors.format_exc_info,
            harmless,
            structlog.dev.ConsoleRenderer(
                colors=sys.stdout.isatty(), exception_formatter=structlog.dev.plain_traceback
            ),
        ]
    )
    handler = logging.StreamHandler(sys.stdout)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared, processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last]
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())
    structlog.configure(
        processors=[
            structlog.stdlib.filter_by_level,
            *shared,
            structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
        ],
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


def harmless(_logger: Any, _method: str, entry: structlog.typing.EventDict) -> structlog.typing.EventDict:
    """For people's terminals: what clusters say in an entry loses its control characters (JSON escapes them)."""
    return {key: printable(value) if isinstance(value, str) else value for key, value in entry.items()}


def debug(log: Any, event: str, **fields: object) -> None:
    """For what is in order: told by a process that has set up its logs, not by a command that merely uses a cache."""
    if structlog.is_configured():
        log.debug(event, **fields)


def _dumps(entry: Any, default: Any = None, **_: Any) -> str:
    return orjson.dumps(entry, default=default or str).decode()
