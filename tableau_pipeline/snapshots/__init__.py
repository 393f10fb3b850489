"""Models' rows as numbered, immutable versions."""
