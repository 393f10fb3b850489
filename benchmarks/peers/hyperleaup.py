"""hyperleaup in the mode that the option names: PARQUET (its default), COPY or INSERT.

Its fourth mode, LARGEFILE, runs only inside Databricks.
"""

import shutil
import sys
from pathlib import Path
from types import ModuleType
from uuid import uuid4

from pyspark.sql import DataFrame

from benchmarks.peers.protocol import contend, options

# hyperleaup imports these modules of Databricks. Empty modules are enough, because the three modes
# here use none of them.
sys.modules |= {
    name: ModuleType(name) for name in ("databricks", "databricks.sdk", "databricks.sdk.runtime")
}

from hyperleaup import HyperFile, HyperFileConfig  # noqa: E402  # ty: ignore[import-not-found]


def _build(frame: DataFrame, folder: Path) -> str:
    (mode,) = options()
    # By default, hyperleaup replaces NULL in some columns by 0, so the contents would differ.
    config = HyperFileConfig(allow_nulls=True)
    # hyperleaup always works below /tmp/hyperleaup: no option changes this folder.
    name = uuid4().hex
    try:
        made = HyperFile(name=name, df=frame, creation_mode=mode, config=config)
        return made.save(str(folder))
    finally:
        shutil.rmtree(f"/tmp/hyperleaup/{name}")


if __name__ == "__main__":
    contend(_build)
