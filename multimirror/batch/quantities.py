"""Resource quantities (`500m`, `1.5Gi`, `1e3`): compared by value, written in the one canonical form.

The server reads a quantity in any spelling and gives it back in its canonical one: no fraction, the largest suffix that
keeps it exact. Binary suffixes stay binary unless the value is smaller than the smallest of them.
"""

import re
from decimal import ROUND_UP, Decimal
from typing import Final

from multimirror.batch.types import Json

_PATTERN: Final = re.compile(r"([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)", re.ASCII)
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIXES: Final = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_NANO: Final = Decimal(1).scaleb(-9)
_MILLI: Final = Decimal(1).scaleb(-3)
_LIMIT: Final = Decimal(2**63 - 1)


class QuantityError(ValueError):
    """The text is no quantity."""


def quantity(value: object) -> Decimal:
    """The number that a quantity stands for. Raises QuantityError."""
    return _read(value)[0]


def canonical(value: object) -> str:
    """The quantity as the server writes it. Raises QuantityError."""
    return _written(*_read(value))


def canonical_resources(resources: Json) -> Json:
    """A list of resources (limits, requests) with its quantities canonical and rounded up to thousandths."""
    rounded = {}
    for name, value in resources.items():
        number, style = _read(value)
        rounded[name] = _written(number.quantize(_MILLI, rounding=ROUND_UP), style)
    return rounded


def _read(value: object) -> tuple[Decimal, str]:
    text = str(value).strip()
    match = _PATTERN.fullmatch(text)
    if match is None or match[1].count(".") > 1 or match[1] in ("+", "-", ".", "+.", "-."):
        raise QuantityError(f"not a quantity: {text!r}")
    suffix = match[2]
    number = Decimal(match[1])
    if suffix in _DECIMAL:
        number, style = number.scaleb(_DECIMAL[suffix]), "decimal"
    elif suffix in _BINARY:
        number, style = number * 2 ** _BINARY[suffix], "binary"
    elif suffix[0] in "eE" and re.fullmatch(r"[-+]?[0-9]+", suffix[1:], re.ASCII) and len(suffix) < 8:
        number, style = number.scaleb(int(suffix[1:])), "exponent"
    else:
        raise QuantityError(f"not a quantity: {text!r}")
    # What is finer than a billionth is rounded up, what is larger than 64 bits is the largest number.
    if abs(number) >= _LIMIT:
        return _LIMIT.copy_sign(number), style
    return number.quantize(_NANO, rounding=ROUND_UP), style


def _written(number: Decimal, style: str) -> str:
    if not number:
        return "0"
    whole = number == number.to_integral_value()
    if style == "binary" and whole and abs(number) >= 1024:
        amount, suffix = int(number), ""
        for name in _BINARY:
            if amount % 1024:
                break
            amount, suffix = amount // 1024, name
        return f"{amount}{suffix}"
    amount, exponent = int(number.scaleb(9)), -9
    while exponent < 18 and amount % 1000 == 0:
        amount, exponent = amount // 1000, exponent + 3
    if style == "exponent":
        return f"{amount}e{exponent}" if exponent else str(amount)
    return f"{amount}{_DECIMAL_SUFFIXES[exponent]}"
