"""Tasks."""

from interp.families.algorithmic.tasks import addition as addition
from interp.families.algorithmic.tasks import induction as induction
from interp.families.algorithmic.tasks import max_of_k as max_of_k
from interp.families.algorithmic.tasks import modular_addition as modular_addition
