"""The Count01 language: are there more 1s than 0s, read at '=' (Zsámboki et al. 2025)."""

from interp.support.exports import exports

__getattr__, __dir__ = exports(__name__, {"tasks": "Count01"})
