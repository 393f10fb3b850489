# One image for the code location, the web server and the daemon; compose.yaml says which is which.
# linux/amd64 only: for Linux, Tableau's Hyper API is made for no other processor.

# bookworm, because the Debian after it has no Java 17. Docker pulls by the digest, that of the index
# of all platforms; the tag is for people. For a newer one, docs/how-to/deployment.md.
FROM python:3.11.16-slim-bookworm@sha256:a36c24f9cbdf4fd0f52d67f0823eeac19c2028c637cecc392d97f980d4fec56b AS base


FROM base AS packages

WORKDIR /srv/tableau_pipeline
# An empty package stands in for the code, so that a changed model does not reinstall everything.
# Editable, because Dagster looks for pyproject.toml above the package.
COPY LICENSE README.md constraints.txt pyproject.toml ./
# The extras of pyproject.toml: `kubernetes` for a cluster, `dagster-plus` for Dagster+.
ARG EXTRAS=postgres
RUN --mount=type=cache,target=/root/.cache/pip \
    install -D /dev/null tableau_pipeline/__init__.py \
    && install -D /dev/null tableau_sandbox/__init__.py \
    && python -m venv /opt/venv \
    && /opt/venv/bin/pip install --constraint constraints.txt --editable ".[$EXTRAS]"


FROM base

# Debian keeps only the newest build of a package: a pinned one could not be installed next month.
# hadolint ignore=DL3008
RUN apt-get update \
    && apt-get install --yes --no-install-recommends openjdk-17-jre-headless procps \
    && rm -rf /var/lib/apt/lists/* \
    && useradd --uid 10001 --create-home pipeline

WORKDIR /srv/tableau_pipeline
COPY --from=packages /opt/venv /opt/venv
COPY LICENSE README.md constraints.txt pyproject.toml ./
COPY deploy deploy
COPY tableau_pipeline tableau_pipeline

ENV PATH=/opt/venv/bin:$PATH \
    PYTHONUNBUFFERED=1 \
    DAGSTER_HOME=/srv/tableau_pipeline/deploy \
    DAGSTER_DISABLE_TELEMETRY=true \
    PIPELINE_DATA_DIR=/srv/data

# A new volume takes over the owner of the folder that it is mounted on. Nothing else belongs to the
# user: what runs here must not change the code, or what dagster.yaml says at the next start. Dagster
# would write another file next to dagster.yaml only for its telemetry, which is off.
RUN install --directory --owner=pipeline --group=pipeline deploy/storage /srv/data \
    && python -m compileall -q tableau_pipeline \
    && python -m tableau_pipeline.snapshots.make_class_archive
USER 10001

CMD ["dagster", "api", "grpc", "--host", "0.0.0.0", "--port", "4000", "--module-name", "tableau_pipeline.definitions"]
