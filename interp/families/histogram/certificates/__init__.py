"""What certificates know of these tasks."""

from interp.families.histogram.certificates import certify as certify
