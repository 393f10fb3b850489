"""The archive of the Java classes that Spark loads, from which its process starts faster.

Without it, Java reads and verifies some ten thousand classes each time that Spark starts. This is
Java's application class-data sharing (JEP 350).
"""

import sys
from pathlib import Path

# Spark starts without the archive, too: a warning would tell nobody what to do.
NO_WARNINGS = ("-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def class_archive() -> Path:
    """Return where this installation of Python has its archive, if it has one."""
    return Path(sys.prefix, "share", "tableau_pipeline", "spark.jsa")


def java_options() -> list[str]:
    """Return the options by which Java uses the archive, if there is one.

    Java itself ignores an archive that another Java or another Spark has made.
    """
    if not class_archive().exists():
        return []
    return [f'-XX:SharedArchiveFile="{class_archive()}"', *NO_WARNINGS]
