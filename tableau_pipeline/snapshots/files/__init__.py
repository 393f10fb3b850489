"""The files with the rows of snapshots, written and read by Spark."""
