from tableau_pipeline.components.published_datasource import PublishedDatasource

__all__ = ["PublishedDatasource"]
