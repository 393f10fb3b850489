from tableau_pipeline.components.loading.project import load_definitions

__all__ = ["load_definitions"]
