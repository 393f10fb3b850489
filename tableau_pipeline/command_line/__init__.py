"""The commands of `tableau-pipeline`."""
