"""Tasks."""

from interp.families.languages.tasks import brackets as brackets
from interp.families.languages.tasks import palindrome as palindrome
from interp.families.languages.tasks import regular as regular
