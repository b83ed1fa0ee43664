"""Resource quantities (`500m`, `1.5Gi`, `1e3`): compared by value, written in the one canonical form.

The server reads a quantity in any spelling and gives it back in its canonical one: no fraction, the largest suffix that
keeps it exact. Binary suffixes stay binary unless the value is smaller than the smallest of them.

Any value at all is read, or refused with a QuantityError, in a time that grows with its length: quantities come from
people, and `99e999999` passes the pattern of every CRD. Beyond 64 bits it is the largest quantity there is.
"""

import re
from decimal import MAX_EMAX, MIN_EMIN, ROUND_UP, Context, Decimal
from typing import Final

from multimirror.batch.types import Json

_PATTERN: Final = re.compile(r"([+-]?[0-9.]+)(?:([eE][-+]?[0-9]{1,18})|([numkKMGTPE]i?)?)", re.ASCII)
_DECIMAL: Final = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_DECIMAL_SUFFIXES: Final = {exponent: suffix for suffix, exponent in _DECIMAL.items()}
_BINARY: Final = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_NANO: Final = Decimal(1).scaleb(-9)
_MILLI: Final = Decimal(1).scaleb(-3)
_LIMIT: Final = Decimal(2**63 - 1)
_FAR: Final = 40  # so many powers of ten away, a number is beyond the limit, or below a billionth, with any suffix
_LONGEST_SHOWN: Final = 64
# Rounded up at 100 digits, and at the ninth after the point again, a number is what it is when rounded up once.
_WIDE: Final = Context(prec=100, rounding=ROUND_UP, Emax=MAX_EMAX, Emin=MIN_EMIN)


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
    if isinstance(value, int) and not isinstance(value, bool):
        return _bounded(Decimal(value)), "decimal"  # not by its text: Python does not write the longest ones
    text = str(value).strip()
    match = _PATTERN.fullmatch(text)
    if match is None or match[1].count(".") > 1 or match[1] in ("+", "-", ".", "+.", "-."):
        raise _refused(text)
    digits, exponent, suffix = match.groups(default="")
    number = Decimal(digits)
    if exponent:
        return _bounded(number, int(exponent[1:])), "exponent"
    if suffix in _BINARY:
        return _bounded(number, factor=Decimal(2 ** _BINARY[suffix])), "binary"
    if suffix in _DECIMAL:
        return _bounded(number, _DECIMAL[suffix]), "decimal"
    raise _refused(text)


def _bounded(number: Decimal, exponent: int = 0, factor: Decimal = Decimal(1)) -> Decimal:
    """What is finer than a billionth is rounded up, what is larger than 64 bits is the largest number."""
    magnitude = number.adjusted() + exponent
    if not number:
        return Decimal(0)
    if magnitude > _FAR:
        return _LIMIT.copy_sign(number)
    if magnitude < -_FAR:
        return _NANO.copy_sign(number)
    result = _WIDE.multiply(_WIDE.scaleb(number, exponent), factor)
    if result.copy_abs() >= _LIMIT:
        return _LIMIT.copy_sign(number)
    return result.quantize(_NANO, context=_WIDE)


def _refused(text: str) -> QuantityError:
    return QuantityError(f"not a quantity: {text if len(text) < _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + '...'!r}")


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
