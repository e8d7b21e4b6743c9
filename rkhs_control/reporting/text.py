"""Text that contains names, which may come from anywhere, and how indices and powers are typeset."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from html import escape

_TURNS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}  # classes in Unicode's bidirectional algorithm
_SYMBOL = r"(?<![\w.])([^\W\d_]{1,2})_([^\W_]{1,4})(?!\w)"  # c_A, T_in; not rkhs_control, plan_1
_POWER = r"(?<=[^\W\d_])\^(-?\d+)(?!\w)"  # m^3, s^-1
_SCIENTIFIC = r"(?<![\w.])(\d+(?:\.\d+)?)e([-+])0*(\d+)(?!\w)"  # with a sign, unlike hashes


def printable(text: str) -> str:
    """Spell out characters that control a terminal or reverse the direction of text."""
    if text.isprintable():
        return text
    return "".join(c.encode("unicode_escape").decode() if _is_control(c) else c for c in text)


def symbols_in(names: Sequence[str]) -> list[str]:
    """The names that consist of one or two letters with an index."""
    return [name for name in names if re.fullmatch(_SYMBOL, name)]


def formula(text: str) -> str:
    """For matplotlib: indices and powers typeset."""
    text = re.sub(_SYMBOL, r"$\\mathregular{\1_{\2}}$", text)
    return re.sub(_POWER, r"$^{\\mathregular{\1}}$", text)


def marked_up(text: str, symbols: Sequence[str] = ()) -> str:
    """For HTML, escaped: indices of these symbols, powers of units and powers of ten typeset.

    The underscore stays in the text, invisible, so that copied names match those in files.
    """
    html = escape(printable(text))
    if symbols:
        known = "|".join(map(re.escape, symbols))
        html = re.sub(
            rf"(?<!\w)({known})(?!\w)",
            lambda found: '{}<sub><span class="unseen">_</span>{}</sub>'.format(*found[1].split("_")),
            html,
        )
    html = re.sub(_POWER, r"<sup>\1</sup>", html)
    return re.sub(_SCIENTIFIC, lambda m: f"{m[1]} × 10<sup>{m[2].strip('+')}{m[3]}</sup>", html)


def _is_control(c: str) -> bool:
    return (unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t") or unicodedata.bidirectional(c) in _TURNS
