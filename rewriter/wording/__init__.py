"""
Reasons -> findings: the one room where what the analysis has found becomes sentences.

The analysis hands on reasons (``facts/reasons``), which hold no words; each kind of them has one function here, which
says the message, the remedy, what is underlined and where the cause is.
"""

from __future__ import annotations

from .registry import worded

__all__ = ["worded"]
