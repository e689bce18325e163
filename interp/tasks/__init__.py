"""Tasks: tokens, labels, samplers and exact domains. One file per task; `register_task` adds a user's own."""

from interp.tasks.base import IGNORED as IGNORED
from interp.tasks.base import Batch as Batch
from interp.tasks.base import Task as Task
from interp.tasks.base import make_task as make_task
from interp.tasks.base import register_task as register_task
from interp.tasks.base import registered_tasks as registered_tasks
from interp.tasks.count01 import Count01 as Count01
