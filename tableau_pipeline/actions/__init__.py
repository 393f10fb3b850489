"""Tableau's action batches for published data: build, compare and validate them."""
