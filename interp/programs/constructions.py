"""Compiled programs as a construction, and their task: importing this file registers both."""

from interp.programs.compile import compiled as compiled
