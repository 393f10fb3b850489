from tableau_pipeline.hyper.hyper_file import HyperFile, HyperFileError, TableInfo, open_hyper

__all__ = ["HyperFile", "HyperFileError", "TableInfo", "open_hyper"]
