"""The data types of refreshes, journals and snapshots, and the stores of journals."""
