"""Action batches, by which Tableau changes published data in place."""
