"""Sweeps: train a grid of specs with workers on this machine or on a Dask cluster, into one durable table.

`interp.sweep` runs a grid (see grid.py for its form), `interp.training.sweeps.read_runs` reads a table at any time, and
`interp.training.sweeps.sweep.estimate` predicts the time, memory and disk space of a sweep.
"""

from interp.training.sweeps.table import read_runs as read_runs
