"""The rows of models as numbered, immutable versions."""
