from tableau_pipeline.sandbox.certificate import certificate_path
from tableau_pipeline.sandbox.options import (
    ADMIN_NAME,
    ADMIN_PASSWORD,
    TOKEN_NAME,
    TOKEN_SECRET,
    Options,
)


def banner(url: str, options: Options) -> str:
    """What a sandbox says of itself when it is ready: in the first line, where it is."""
    lines = [
        f"Tableau sandbox ready at {url} (REST API {options.rest_version}, data in"
        f" {options.data_dir})",
        f"  user: {ADMIN_NAME} / {ADMIN_PASSWORD}",
        f"  personal access token: {TOKEN_NAME} / {TOKEN_SECRET}",
    ]
    if options.tls:
        lines.append(f"  certificate to trust: {certificate_path(options.data_dir)}")
    return "\n".join(lines) + "\n"
