"""Tables and figures, and the one page that holds them. No maths here."""

from interp.report.page import Report

__all__ = ["Report"]
