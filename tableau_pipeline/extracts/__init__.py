"""From models to files: compute, check, compare and build the content of tables.

These modules know neither servers nor journals: they build and check files, but send nothing.
"""
