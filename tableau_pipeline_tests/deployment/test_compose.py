"""Checks of the image, compose.yaml and .env that need no Docker."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from compose_spec import PyCompose

from tableau_pipeline_tests.conftest import ROOT
from tableau_pipeline_tests.dagster_servers import free_port, running, said

COMPOSE: dict[str, Any] = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


def dagster_yaml_with_logs() -> dict[str, Any]:
    """deploy/dagster.yaml with run logs in a bucket, as the comment at its end describes."""
    text = (ROOT / "deploy" / "dagster.yaml").read_text("utf-8")
    before, heading, logs = text.partition("# compute_logs:\n")
    return yaml.safe_load(before + (heading + logs).replace("# ", ""))


SECRET = re.compile(r"PASSWORD|SECRET|TOKEN|KEY")


def text(name: str) -> str:
    return (ROOT / name).read_text("utf-8")


def variables(of: str) -> set[str]:
    """The variables that a compose file takes from the environment; `$${` is plain text."""
    return set(re.findall(r"\$\{(\w+)", of.replace("$$", "")))


def test_dockerfile_is_clean():
    """Prevents: the image runs as root, or grows by files that apt and pip leave behind."""
    linter = Path(sys.executable).with_name("hadolint")
    linted = subprocess.run([linter, ROOT / "Dockerfile"], capture_output=True, text=True)
    assert (linted.returncode, linted.stdout) == (0, "")


def test_images_are_pinned():
    """Prevents: next month's build starts from an image that was never tested."""
    bases = re.findall(r"^FROM (\S+)(?: AS (\w+))?$", text("Dockerfile"), re.M)
    stages = {stage for _, stage in bases}
    pulled = [image for image, _ in bases if image not in stages]
    pulled += [service["image"] for service in SERVICES.values() if "build" not in service]
    assert len(pulled) == 2
    assert all(re.search(r"@sha256:[0-9a-f]{64}$", image) for image in pulled)
    assert "# syntax=" not in text("Dockerfile"), (
        "this line pulls another image, the builder's front end"
    )


def test_the_user_of_the_image_writes_to_volumes_only():
    """Prevents: a model changes dagster.yaml or the code for the next start."""
    (owned,) = re.findall(r"--owner=pipeline --group=pipeline (.*) \\\n", text("Dockerfile"))
    volumes = {place for each in SERVICES.values() for place in each["volumes"]}
    mounted = {place.partition(":")[2] for place in volumes} - {"/var/lib/postgresql/data"}
    assert {str(Path("/srv/tableau_pipeline", folder)) for folder in owned.split()} == mounted
    assert "chown" not in text("Dockerfile")


def test_compose_file_keeps_to_the_specification():
    """Prevents: Docker on the server refuses a key of compose.yaml."""
    composition = PyCompose.from_json(json.dumps(COMPOSE))
    assert sorted(composition.service_names()) == ["code", "daemon", "postgres", "webserver"]


def test_compose_file_names_only_what_there_is():
    """Prevents: compose.yaml names a volume or a service that it does not declare."""
    for service in SERVICES.values():
        assert set(service.get("depends_on", {})) <= SERVICES.keys()
        for volume in service["volumes"]:
            assert volume.split(":")[0] in COMPOSE["volumes"]
        assert service["healthcheck"]["test"]
        assert service["restart"] == "unless-stopped"


def test_dagsters_of_the_image_are_the_composed_ones():
    """Prevents: the image starts differently by itself and in the composition."""
    (command,) = re.findall(r"^CMD (\[.*\])$", text("Dockerfile"), re.M)
    assert json.loads(command) == SERVICES["code"]["command"]
    settings = dict(re.findall(r"(DAGSTER_HOME|PIPELINE_DATA_DIR)=(\S+)", text("Dockerfile")))
    assert "DAGSTER_DISABLE_TELEMETRY=true" in text("Dockerfile")
    assert settings.items() <= SERVICES["code"]["environment"].items()


def test_every_variable_is_documented():
    """Prevents: an administrator learns of a setting only from a failed start."""
    documented = set(re.findall(r"^#? ?(\w+)=", text(".env.example"), re.M))
    storage = re.findall(r"env: (\w+)", text("deploy/dagster.yaml"))
    assert variables(text("compose.yaml")) | set(storage) <= documented
    assert set(storage) <= SERVICES["daemon"]["environment"].keys()


def test_secrets_come_from_the_environment_only():
    """Prevents: a password is in the repository, in the image, or in the wrong service."""
    assert not SECRET.search(re.sub(r"#.*", "", text("Dockerfile")))
    for name, service in SERVICES.items():
        assert ("env_file" in service) == (name == "code")
        for variable, value in service["environment"].items():
            assert not SECRET.search(variable) or value.startswith("${")
    for line in text(".env.example").splitlines():
        if SECRET.search(line.partition("=")[0]) and not line.startswith("#"):
            assert line.endswith(":-}")


def test_what_the_image_copies_is_there_and_let_in():
    """Prevents: a build stops at a COPY, or takes `.env` into the image."""
    first, *rules = [
        line for line in text(".dockerignore").splitlines() if not line.startswith("#")
    ]
    assert first == "*"
    let_in = {rule[1:].removesuffix("/*.yaml") for rule in rules if rule.startswith("!")}
    copied = re.findall(r"^COPY (?!--from)(.*) \S+$", text("Dockerfile"), re.M)
    sources = {source for line in copied for source in line.split()}
    assert sources == let_in
    assert all((ROOT / source).exists() for source in sources)


def test_postgresql_is_the_only_difference():
    """Prevents: a server lacks a pool or a retry of a laptop, or a laptop lacks one of a server."""
    sqlite: dict[str, Any] = yaml.safe_load(text("dagster_home/dagster.yaml"))
    postgresql: dict[str, Any] = yaml.safe_load(text("deploy/dagster.yaml"))
    storage = postgresql.pop("storage")
    assert list(storage) == ["postgres"]
    assert postgresql == sqlite


def test_code_server_is_the_location_of_the_laptop():
    """Prevents: triggers lose their state because the location has another name on a server."""
    (target,) = yaml.safe_load(text("workspace.yaml"))["load_from"]
    (server,) = yaml.safe_load(text("deploy/workspace.yaml"))["load_from"]
    name, module = (target["python_module"][key] for key in ("location_name", "module_name"))
    command = SERVICES["code"]["command"]
    port = int(command[command.index("--port") + 1])
    assert server["grpc_server"] == {"host": "code", "port": port, "location_name": name}
    assert command[-1] == module
    project = tomllib.loads(text("pyproject.toml"))["tool"]["dg"]["project"]
    assert project["code_location_name"] == name
    assert module.startswith(f"{project['root_module']}.")


@pytest.mark.slow
@pytest.mark.parametrize(
    "command",
    [
        pytest.param("dg dev", marks=pytest.mark.long),
        pytest.param("dagster-webserver", marks=pytest.mark.long),
        "dagster-daemon run",
    ],
)
def test_it_is_read(command: str, tmp_path: Path):
    """Prevents: a command of Dagster ignores the settings in .env."""
    home, log = tmp_path / "home", tmp_path / "log"
    home.mkdir()
    shutil.copy(ROOT / "dagster_home" / "dagster.yaml", home)
    shutil.copy(ROOT / "workspace.yaml", tmp_path)
    # The location refuses the word "perhaps", which shows that .env was read. The daemon needs
    # DAGSTER_HOME.
    settings = (ROOT / ".env.example").read_text("utf-8").replace(":-off}", ":-perhaps}")
    (tmp_path / ".env").write_text(f"{settings}DAGSTER_HOME={home}\n", "utf-8")
    program, *arguments = command.split()
    arguments += ["-w", "workspace.yaml"]
    arguments += [] if "daemon" in program else ["--port", str(free_port())]
    here = [Path(sys.executable).with_name(program), *arguments]
    with running(
        here, folder=tmp_path, environment=os.environ, log=log, by=signal.SIGINT
    ) as process:
        said(process, log, "PIPELINE_TRIGGERS is 'perhaps'")
    assert len(list(home.iterdir())) > 1, "the DAGSTER_HOME of .env is not in use"


def test_it_gives_way_to_the_environment():
    """Prevents: a .env on the server silently overrides the variables of the container."""
    lines = (ROOT / ".env.example").read_text("utf-8").splitlines()
    set_here = dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
    assert len(set_here) > 15
    for name, value in set_here.items():
        assert value.startswith(f"${{{name}:-"), name
