"""Text from elsewhere, on its way to somebody's terminal.

A terminal does what it is sent: an escape sequence in the name, the message or the log of somebody else's Job may fill
the clipboard (OSC 52), rewrite what stands on the screen, or answer as if the user had typed. So whatever a cluster
told us loses its control characters before a person sees it: C0 but for the line break and the tab, DEL, C1, separators
that some terminals take for line breaks, and the characters that turn the direction of writing around.
"""

import re
from typing import Final

REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
_DIRECTIONS: Final = "\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069"
_CONTROLS: Final = re.compile(f"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff{_DIRECTIONS}]")


def printable(text: str) -> str:
    """The same text with each control character replaced; line breaks and tabs stay."""
    return text if text.isascii() and text.isprintable() else _CONTROLS.sub(REPLACEMENT, text)
