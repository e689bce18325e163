"""Sweeps: a grid of specs, its cells, one durable table. Workers on this machine or on a Dask cluster.

`interp.sweep` runs a grid (see grid.py for its form), `interp.sweeps.table.read_runs` reads a table at any time,
`interp.sweeps.estimate.estimate` says beforehand what a sweep will take.
"""
