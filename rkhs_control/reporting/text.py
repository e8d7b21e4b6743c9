"""Texts that names go into: names come from anywhere."""

from __future__ import annotations

import unicodedata

_TURNS = {"LRE", "RLE", "LRO", "RLO", "PDF", "LRI", "RLI", "FSI", "PDI"}  # classes of Unicode's bidirectional algorithm


def printable(text: str) -> str:
    """With characters that control a terminal or turn the direction of text written out."""
    return "".join(c.encode("unicode_escape").decode() if _is_control(c) else c for c in text)


def _is_control(c: str) -> bool:
    return (unicodedata.category(c) in ("Cc", "Cs") and c not in "\n\t") or unicodedata.bidirectional(c) in _TURNS
