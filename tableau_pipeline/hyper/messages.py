"""Recognize errors of hyperd by their English messages, because nothing else distinguishes them.

A new hyperd may word its messages differently, so `tableau_pipeline_tests/hyper/test_messages.py`
provokes each error.
"""

from tableauhyperapi import HyperException

# hyperd reports this error for a full disk, and also for a limit on the size of files.
_DISK_FULL = "growing the database file failed"
_OUT_OF_MEMORY = "memory limit"
_DAMAGED_PARQUET = ("not a Parquet file", "probably corrupt")
# Older releases of hyperd use the second wording.
_NOT_LOADED = ("could not load database: ", "There was an error during loading database: ")
_DATABASE_ID = ": DatabaseId"


def is_out_of_memory(error: HyperException) -> bool:
    """Whether a query needs more memory than hyperd may use."""
    return _OUT_OF_MEMORY in str(error)


def is_disk_full(error: HyperException) -> bool:
    """Whether hyperd could not enlarge a file."""
    return _DISK_FULL in str(error)


def may_be_damaged(error: HyperException) -> bool:
    """Whether a Parquet file is damaged, or has values that hyperd cannot hold."""
    return any(words in str(error) for words in _DAMAGED_PARQUET)


def reason_not_opened(error: HyperException) -> str:
    """Return why hyperd could not open a `.hyper` file; leave out the path and the id."""
    # The message is 'error opening database "x": could not load database: <the reason>: DatabaseId:
    # ...'.
    message = str(error.main_message)
    for words in _NOT_LOADED:
        if reason := message.partition(words)[2].partition(_DATABASE_ID)[0]:
            return reason
    return message
