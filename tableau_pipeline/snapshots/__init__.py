"""Store the rows of models as numbered, immutable versions."""
