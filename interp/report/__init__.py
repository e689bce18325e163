"""Tables and figures, and the page that contains them. It computes no measures."""

from interp.report.page import Report

__all__ = ["Report"]
