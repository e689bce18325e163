"""Tasks."""

from interp.families.memorization.tasks import tables as tables
