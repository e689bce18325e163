"""Sections of reports."""

from interp.families.histogram.sections import answers as answers
from interp.families.histogram.sections import parts as parts
