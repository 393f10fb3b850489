"""Assess a site: what its published extracts cost, and what updates would save. It only reads."""
