"""The sections of a report, imported automatically. `base` says how to write one."""

from interp.sections.base import Section as Section
from interp.sections.base import Study as Study
from interp.sections.base import all_sections as all_sections
from interp.sections.base import availability as availability
from interp.sections.base import fill as fill
from interp.sections.base import section as section
