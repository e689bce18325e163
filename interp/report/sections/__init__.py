"""The sections of a report, imported automatically. `base` says how to write one."""

from interp.report.sections.base import Section as Section
from interp.report.sections.base import Study as Study
from interp.report.sections.base import all_sections as all_sections
from interp.report.sections.base import availability as availability
from interp.report.sections.base import fill as fill
from interp.report.sections.base import section as section
