"""Sections of reports."""

from interp.families.count01.sections import head_failures as head_failures
from interp.families.count01.sections import separation as separation
from interp.families.count01.sections import two_answers as two_answers
