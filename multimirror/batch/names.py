"""What a name may look like: labels, subdomains, qualified names, label values.

Each function returns the complaints about a value in the API server's words; an empty list is a good name. Lengths are
in bytes, and patterns match the whole text (a trailing newline is not forgiven).
"""

import functools
import re
from collections.abc import Sequence
from typing import Final

_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = rf"{_LABEL}(\.{_LABEL})*"
_QUALIFIED: Final = r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]"
_LABEL_VALUE: Final = f"({_QUALIFIED})?"
_DOMAIN_PATH: Final = r"[A-Za-z0-9/\-._~%!$&'()*+,;=:]+"

_LABEL_PATTERN: Final = re.compile(_LABEL)
_SUBDOMAIN_PATTERN: Final = re.compile(_SUBDOMAIN)
_QUALIFIED_PATTERN: Final = re.compile(_QUALIFIED)
_LABEL_VALUE_PATTERN: Final = re.compile(_LABEL_VALUE)
_DOMAIN_PATH_PATTERN: Final = re.compile(_DOMAIN_PATH)

_LONGEST_NAME: Final = 253 + 1 + 63
_EMPTY: Final = "must be non-empty"


def dns_label(value: str) -> list[str]:
    complaints = _at_most(63, value, "characters")
    if _LABEL_PATTERN.fullmatch(value):
        return complaints
    if _SUBDOMAIN_PATTERN.fullmatch(value):
        complaints.append("must not contain dots")
    else:
        text = (
            "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', "
            "and must start and end with an alphanumeric character"
        )
        complaints.append(_pattern_text(text, _LABEL, "my-name", "123-abc"))
    return complaints


def dns_subdomain(value: str, unit: str = "characters") -> list[str]:
    complaints = _at_most(253, value, unit)
    if not _SUBDOMAIN_PATTERN.fullmatch(value):
        text = (
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', "
            "and must start and end with an alphanumeric character"
        )
        complaints.append(_pattern_text(text, _SUBDOMAIN, "example.com"))
    return complaints


def qualified_name(value: str) -> Sequence[str]:
    """The key of a label, an annotation, a finalizer: `name` or `domain/name`."""
    return _usual_name(value) if len(value) <= _LONGEST_NAME else _qualified_name(value)


def _qualified_name(value: str) -> Sequence[str]:
    prefix, slash, name = value.rpartition("/")
    text = _pattern_text(
        "must consist of alphanumeric characters, '-', '_' or '.', "
        "and must start and end with an alphanumeric character",
        _QUALIFIED,
        "MyName",
        "my.name",
        "123-abc",
    )
    if "/" in prefix:
        return [f"a valid label key {text} with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')"]
    complaints = []
    if slash:
        complaints += [
            f"prefix part {complaint}" for complaint in (dns_subdomain(prefix, "bytes") if prefix else [_EMPTY])
        ]
    complaints += [f"name part {complaint}" for complaint in (_at_most(63, name, "bytes") if name else [_EMPTY])]
    if not _QUALIFIED_PATTERN.fullmatch(name):
        complaints.append(f"name part {text}")
    return complaints


_usual_name: Final = functools.lru_cache(maxsize=4096)(_qualified_name)  # the same few come all the time


def label_value(value: str) -> list[str]:
    complaints = _at_most(63, value, "bytes")
    if not _LABEL_VALUE_PATTERN.fullmatch(value):
        text = (
            "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', "
            "and must start and end with an alphanumeric character"
        )
        complaints.append(_pattern_text(text, _LABEL_VALUE, "MyValue", "my_value", "12345"))
    return complaints


def domain_path(value: str) -> list[str]:
    """The part of `acme.io/foo` behind the first slash."""
    if _DOMAIN_PATH_PATTERN.fullmatch(value):
        return []
    return [_pattern_text("Invalid path", _DOMAIN_PATH)]


def size(text: str) -> int:
    """The length that limits apply to."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _at_most(limit: int, value: str, unit: str) -> list[str]:
    # The limit is always in bytes; what the server calls them depends on which of its validators speaks.
    return [f"must be no more than {limit} {unit}"] if size(value) > limit else []


def _pattern_text(text: str, pattern: str, *examples: str) -> str:
    if not examples:
        return f"{text} (regex used for validation is '{pattern}')"
    listed = " or ".join(f"'{example}', " for example in examples)
    return f"{text} (e.g. {listed}regex used for validation is '{pattern}')"
