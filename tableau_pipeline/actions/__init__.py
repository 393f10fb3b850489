"""Tableau's action batches for published data."""
