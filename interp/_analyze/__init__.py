"""From a checkpoint to a report: the measures and certificates that apply to a model, in one page.

`analyze` is the entry; one file per family says what its report holds, and `generic` what every report holds.
"""

from interp._analyze.entry import analyze as analyze
from interp._analyze.entry import certify as certify
from interp._analyze.entry import list_sections as list_sections
