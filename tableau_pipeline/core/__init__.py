"""The data types of a refresh, and the protocols of its journal and snapshots."""
