"""Compute, check and compare the content of tables, and build files from the models.

These modules build and check files, but send nothing: they use neither servers nor journals.
"""
