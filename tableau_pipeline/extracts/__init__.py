"""Compute, check and compare the content of tables, and build files from the models.

These modules send nothing to the server, and write no records of refreshes.
"""
