from tableau_pipeline.hyper.hyper_file import (
    HyperFile,
    HyperFileError,
    TableInfo,
    convert,
    defragment,
    open_hyper,
)

__all__ = ["HyperFile", "HyperFileError", "TableInfo", "convert", "defragment", "open_hyper"]
