"""Where `tableau_pipeline.core.declaration` was; gone with the next release."""

from tableau_pipeline.core.declaration import Declaration, Guard, Reconcile, Table

__all__ = ["Declaration", "Guard", "Reconcile", "Table"]
