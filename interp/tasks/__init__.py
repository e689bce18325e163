"""Tasks: vocabularies, labels, samplers and lists of all inputs. One file per task; `register_task` adds your own.

This file lists only the names that other packages import.
"""

from interp.tasks.batch import IGNORED as IGNORED
from interp.tasks.batch import Batch as Batch
from interp.tasks.generates import Generates as Generates
from interp.tasks.pairs import Pairs as Pairs
from interp.tasks.questions import NextSymbols as NextSymbols
from interp.tasks.questions import Questions as Questions
from interp.tasks.registry import load_installed as _load_installed
from interp.tasks.registry import load_plug_ins as _load_plug_ins
from interp.tasks.registry import make_task as make_task
from interp.tasks.registry import register_task as register_task
from interp.tasks.registry import registered_tasks as registered_tasks
from interp.tasks.task import Task as Task

_load_plug_ins("tasks")
_load_installed()
