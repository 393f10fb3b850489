from tableau_pipeline.components.audit.audit_component import Audit
from tableau_pipeline.components.custom_batch import send_batch
from tableau_pipeline.components.publish_file.file_drop import FileDrop
from tableau_pipeline.components.published_datasource.component import PublishedDatasource

__all__ = ["Audit", "FileDrop", "PublishedDatasource", "send_batch"]
