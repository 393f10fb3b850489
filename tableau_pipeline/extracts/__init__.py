"""Compute, check and compare the content of tables, and build files from the models.

These modules build and check files. They send nothing, and write no records of refreshes.
"""
