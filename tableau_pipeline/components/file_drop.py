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
from tableau_pipeline.components.publish_file import FROM_FILES, PublishFileConfig, publish_files
from tableau_pipeline.components.yaml_component import YamlComponent
from tableau_pipeline.errors import FilesError
from tableau_pipeline.ingest.options import is_passed_over
from tableau_pipeline.yaml_keys import keyed

# A file counts as complete after this many unchanged looks: while a program writes it, its size or
# time stamp changes from tick to tick.
_STILL = 2


@keyed
class FileDrop(YamlComponent):
    """Publish each file that is dropped into a folder, including one that replaces another."""

    folder: str = Field(description="The folder to watch. Daemon and runs must both see it.")
    pattern: str = Field(default="*", description='Which files to publish, such as "*.csv".')
    sensor: str = Field(
        default="file_drop",
        description="Name of the sensor, different for each FileDrop of a code location.",
    )
    poll_seconds: int = Field(
        default=30,
        ge=1,
        description="Seconds between looks. A file is published at the third unchanged look.",
    )
    publish: dict[str, Any] = Field(
        default_factory=dict,
        description="Run config of the job publish_file, {project: Uploads}. Without a "
        "`name`, the data source has the file's.",
    )

    @field_validator("publish")
    @classmethod
    def _known(cls, publish: dict[str, Any]) -> dict[str, Any]:
        try:
            # The sensor sets these two for each file; any text does to check the rest.
            PublishFileConfig(**{"path": "x", "name": "x", **publish})
        except ValidationError as error:
            wrong = "; ".join(
                f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()
            )
            raise ValueError(wrong) from error
        return publish

    def build_defs(self, context: dg.ComponentLoadContext) -> dg.Definitions:
        """Return the sensor and a job of its own; the location need not have `publish_file`."""

        @dg.job(
            name=f"{self.sensor}_publish_file",
            description=f"Publishes a file that was dropped into {self.folder}.",
            tags=FROM_FILES,
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
            if passed := passed_over(folder, self.pattern):
                context.log.info("Passed over %s: such names are those of unfinished files", passed)
            found = look(folder, self.pattern, json.loads(context.cursor or "{}"))
            alike = self._alike(found)
            left_out = {*chain(*alike)}
            # Without a place in the cursor, a file starts over once it is the only one.
            files = {name: seen for name, seen in found.items() if name not in left_out}
            requests = [
                self._request(folder / name, seen["stamp"])
                for name, seen in files.items()
                if seen["still"] == _STILL
            ]
            waiting = [name for name, seen in files.items() if seen["still"] < _STILL]
            refused = _described(alike) if alike else ""
            # A tick that fails asks for no run and keeps no cursor, so all other files come first.
            if refused and not requests and not waiting:
                raise FilesError(refused)
            told = f"May still be written: {', '.join(waiting)}" if waiting else "No new file"
            skip_reason = None if requests else ". ".join(filter(None, (told, refused)))
            return dg.SensorResult(requests, cursor=json.dumps(files), skip_reason=skip_reason)

        return dg.Definitions(sensors=[drop])

    def _alike(self, names: Iterable[str]) -> list[list[str]]:
        """Return groups of files that would replace the rows of each other."""
        groups = defaultdict[str, list[str]](list)
        for name in names:
            file = Path(name)
            # A site ignores the case of names. Without append, each file of one data source is to
            # replace the one before it.
            place = file.name if self.publish.get("mode") == "append" else name
            groups[place if "name" in self.publish else file.stem.casefold()].append(name)
        return [group for group in groups.values() if len(group) > 1]

    def _request(self, file: Path, stamp: str) -> dg.RunRequest:
        config = {"name": file.stem, **self.publish, "path": str(file.absolute())}
        return dg.RunRequest(
            # Dagster runs a key once; with the stamp, a file that is replaced gets a new one.
            run_key=f"{file.absolute()} {stamp}",
            run_config={"ops": {"publish_files": {"config": config}}},
            # What the list of runs shows of a run before its data source is known.
            tags={"file": file.name},
        )


def _described(alike: Sequence[Sequence[str]]) -> str:
    more = f", as would {len(alike) - 1} other groups of files" if len(alike) > 1 else ""
    return (
        f"{' and '.join(alike[0])} have one name, so each would replace the rows of the other"
        f"{more}. Rename one of them, or give each its own FileDrop: for one folder or pattern, "
        "with a project or name of its own. All other files are published."
    )


def look(folder: Path, pattern: str, before: dict[str, dict]) -> dict[str, dict]:
    """Return each file's stamp and the number of looks for which it has not changed.

    Files are named by their paths within the folder.
    """
    found = {}
    for file in sorted(folder.glob(pattern)):
        name = file.relative_to(folder).as_posix()
        # Programs that copy files give such names to what is not complete yet.
        if file.is_file() and not is_passed_over(file.name):
            stat = file.stat()
            # Copies may keep the time of the last change of what they copy, but not the last one.
            stamp = f"{stat.st_size} {stat.st_mtime_ns} {stat.st_ctime_ns}"
            last = before.get(name, {})
            still = last["still"] + 1 if last.get("stamp") == stamp else 0
            # It counts one beyond ripe, so that a file is requested once and not at each look.
            found[name] = {"stamp": stamp, "still": min(still, _STILL + 1)}
    return found


def passed_over(folder: Path, pattern: str) -> str:
    """Return the names of files that match, and are left where they are; "" for none."""
    found = (file.name for file in folder.glob(pattern) if file.is_file())
    return ", ".join(sorted(filter(is_passed_over, found)))
