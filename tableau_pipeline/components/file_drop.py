"""The component FileDrop: publish each file that is dropped into a folder."""

import json
from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import dagster as dg
from pydantic import Field, ValidationError, field_validator

from tableau_pipeline.components.instigators import default_status
from tableau_pipeline.components.publish_file import FILES_TAG, PublishFileConfig, publish_files
from tableau_pipeline.components.yaml_component import YamlComponent
from tableau_pipeline.errors import FilesError
from tableau_pipeline.ingest.options import is_skipped
from tableau_pipeline.yaml_keys import keyed

# A file counts as complete after this many ticks in a row without a change. While a program writes
# a file, the size or the time stamp changes between ticks.
_STILL = 2


@keyed
class FileDrop(YamlComponent):
    """Publish each file that is dropped into a folder, including a file that replaces another."""

    folder: str = Field(description="The folder to watch. Daemon and runs must both see it.")
    pattern: str = Field(default="*", description='Which files to publish, such as "*.csv".')
    sensor: str = Field(
        default="file_drop",
        description="Name of the sensor, different for each FileDrop of a code location.",
    )
    poll_seconds: int = Field(
        default=30,
        ge=1,
        description="Seconds between looks. A file is published once three looks in a row find it "
        "unchanged.",
    )
    publish: dict[str, Any] = Field(
        default_factory=dict,
        description="Run config of the job publish_file, {project: Uploads}. The default of "
        "`name` is the name of the file.",
    )

    @field_validator("publish")
    @classmethod
    def _valid_config(cls, publish: dict[str, Any]) -> dict[str, Any]:
        try:
            # Any `path` and `name` suffice for this check, because the sensor sets both for each
            # file.
            PublishFileConfig(**{"path": "x", "name": "x", **publish})
        except ValidationError as error:
            problems = "; ".join(
                f"{'.'.join(map(str, details['loc']))}: {details['msg']}"
                for details in error.errors()
            )
            raise ValueError(problems) from error
        return publish

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the sensor and its own job, so that the location need not have `publish_file`."""

        @dg.job(
            name=f"{self.sensor}_publish_file",
            description=f"Publishes a file that was dropped into {self.folder}.",
            tags=FILES_TAG,
        )
        def publish_dropped() -> None:
            publish_files()

        @dg.sensor(
            name=self.sensor,
            job=publish_dropped,
            minimum_interval_seconds=self.poll_seconds,
            default_status=default_status(dg.DefaultSensorStatus),
            description=f"Publishes files that are dropped into {self.folder}.",
        )
        def drop(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
            folder = Path(self.folder)
            if not folder.is_dir():
                return dg.SkipReason(f"{folder} is not a folder")
            if names := unfinished_files(folder, self.pattern):
                context.log.info("Skipped %s: unfinished files have such names", names)
            matching = unchanged_looks(folder, self.pattern, json.loads(context.cursor or "{}"))
            groups = self._groups_with_one_name(matching)
            left_out = {*chain(*groups)}
            # Leave files with a shared name out of the cursor, so that a file's count starts from
            # zero once no other file shares the name.
            files = {name: entry for name, entry in matching.items() if name not in left_out}
            requests = [
                self._request(folder / name, entry["stamp"])
                for name, entry in files.items()
                if entry["still"] == _STILL
            ]
            waiting = [name for name, entry in files.items() if entry["still"] < _STILL]
            problem = _problem(groups) if groups else ""
            # Fail only after all other files are published, because a failed tick requests no run
            # and keeps no cursor.
            if problem and not requests and not waiting:
                raise FilesError(problem)
            state = (
                f"Waiting for files that may still change: {', '.join(waiting)}"
                if waiting
                else "No new file"
            )
            skip_reason = None if requests else ". ".join(filter(None, (state, problem)))
            return dg.SensorResult(requests, cursor=json.dumps(files), skip_reason=skip_reason)

        return dg.Definitions(sensors=[drop])

    def _groups_with_one_name(self, names: Iterable[str]) -> list[list[str]]:
        """Return the groups of files that would replace each other's rows."""
        groups = defaultdict[str, list[str]](list)
        for name in names:
            file = Path(name)
            # Without `name`, a file's name becomes the name of the data source. Compare these names
            # without case, because a site ignores case. With `name` and `append`, a file replaces
            # the rows of a file with the same name, also from another folder. With `name` alone,
            # each new file replaces all rows on purpose.
            place = file.name if self.publish.get("mode") == "append" else name
            groups[place if "name" in self.publish else file.stem.casefold()].append(name)
        return [group for group in groups.values() if len(group) > 1]

    def _request(self, file: Path, stamp: str) -> dg.RunRequest:
        config = {"name": file.stem, **self.publish, "path": str(file.absolute())}
        return dg.RunRequest(
            # Dagster runs each key once. The stamp (size and times) gives a replaced file a new
            # key.
            run_key=f"{file.absolute()} {stamp}",
            run_config={"ops": {"publish_files": {"config": config}}},
            # The list of runs shows this tag until it can show the data source.
            tags={"file": file.name},
        )


def _problem(alike: Sequence[Sequence[str]]) -> str:
    """Describe the first of these groups of files, and the remedy."""
    more = f" ({len(alike)} such groups in all)" if len(alike) > 1 else ""
    return (
        f"{' and '.join(alike[0])} have the same name apart from folder, suffix and case, so each "
        f"would replace the rows of the other{more}. Rename one of them, or give each its own "
        "FileDrop, with a folder or pattern and a project or name of its own. All other files are "
        "published."
    )


def unchanged_looks(folder: Path, pattern: str, before: dict[str, dict]) -> dict[str, dict]:
    """Return each file's stamp (size and times), and how many looks in a row found it unchanged.

    The result's keys are the paths of the matching files within the folder.

    Args:
        before: the result of the previous call.
    """
    files = {}
    for file in sorted(folder.glob(pattern)):
        name = file.relative_to(folder).as_posix()
        # Skip the names that programs give to a file while they copy it.
        if file.is_file() and not is_skipped(file.name):
            stat = file.stat()
            # A copy may keep the original's modification time (mtime), but always has its own
            # change time (ctime).
            stamp = f"{stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}"
            last = before.get(name, {})
            still = last["still"] + 1 if last.get("stamp") == stamp else 0
            # Count up to _STILL + 1, so that the count equals _STILL in only one look, which then
            # requests the run.
            files[name] = {"stamp": stamp, "still": min(still, _STILL + 1)}
    return files


def unfinished_files(folder: Path, pattern: str) -> str:
    """Return the matching names that programs give to unfinished files; "" if there are none."""
    names = (file.name for file in folder.glob(pattern) if file.is_file())
    return ", ".join(sorted(filter(is_skipped, names)))
