from tableau_pipeline.components.publish_file.job import publish_file, publish_files

__all__ = ["publish_file", "publish_files"]
