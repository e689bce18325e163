"""What certificates know of these tasks."""

from interp.families.languages.certificates import enumerated as enumerated
from interp.families.languages.certificates import evidence as evidence
from interp.families.languages.certificates import palindrome as palindrome
from interp.families.languages.certificates import strings as strings
