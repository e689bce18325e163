"""Tasks: vocabularies, labels, samplers and lists of all inputs. One file per task; `register_task` adds your own.

This file lists only the names that other packages import.
"""

from interp.tasks.algorithmic_addition import Addition as Addition
from interp.tasks.algorithmic_brackets import Brackets as Brackets
from interp.tasks.algorithmic_induction import Induction as Induction
from interp.tasks.algorithmic_max_at_last import MaxAtLast as MaxAtLast
from interp.tasks.algorithmic_max_of_k import MaxOfK as MaxOfK
from interp.tasks.algorithmic_modular_addition import ModularAddition as ModularAddition
from interp.tasks.base import Task as Task
from interp.tasks.batch import IGNORED as IGNORED
from interp.tasks.batch import Batch as Batch
from interp.tasks.batch import Pairs as Pairs
from interp.tasks.count01 import Count01 as Count01
from interp.tasks.generation import Generates as Generates
from interp.tasks.histogram import Histogram as Histogram
from interp.tasks.languages import Language as Language
from interp.tasks.languages_dyck import Dyck1 as Dyck1
from interp.tasks.languages_dyck import Dyck2 as Dyck2
from interp.tasks.languages_palindrome import Palindrome as Palindrome
from interp.tasks.languages_regular import First as First
from interp.tasks.languages_regular import One as One
from interp.tasks.languages_regular import Parity as Parity
from interp.tasks.memorization import TableTask as TableTask
from interp.tasks.memorization_tables import Bigram as Bigram
from interp.tasks.memorization_tables import KGram as KGram
from interp.tasks.memorization_tables import Lookup as Lookup
from interp.tasks.memorization_tables import LowRank as LowRank
from interp.tasks.memorization_tables import Table as Table
from interp.tasks.memorization_tables import bigram as bigram
from interp.tasks.memorization_tables import kgram as kgram
from interp.tasks.memorization_tables import lookup as lookup
from interp.tasks.memorization_tables import low_rank as low_rank
from interp.tasks.memorization_tables import table as table
from interp.tasks.next_symbols import NextSymbols as NextSymbols
from interp.tasks.plugins import load_families as _load_families
from interp.tasks.plugins import load_installed as _load_installed
from interp.tasks.questions import Questions as Questions
from interp.tasks.registry import make_task as make_task
from interp.tasks.registry import register_task as register_task
from interp.tasks.registry import registered_tasks as registered_tasks

_load_families("tasks")
_load_installed()
