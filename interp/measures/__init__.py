"""Measures: functions from models and inputs to small labeled tables. Each file is imported when it is first used."""

from interp.support.exports import exports

__getattr__, __dir__ = exports(__name__)
