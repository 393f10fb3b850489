from tableau_pipeline.sandbox.http.certificate import certificate_path
from tableau_pipeline.sandbox.options import (
    ADMIN_NAME,
    ADMIN_PASSWORD,
    CONNECTED_APP,
    TOKEN_NAME,
    TOKEN_SECRET,
    Options,
)


def banner(url: str, options: Options) -> str:
    """Return what a sandbox prints when it is ready; the first line has its URL."""
    lines = [
        f"Tableau sandbox ready at {url} (REST API {options.rest_version}, data in"
        f" {options.data_dir})",
        f"  user: {ADMIN_NAME} / {ADMIN_PASSWORD}",
        f"  personal access token: {TOKEN_NAME} / {TOKEN_SECRET}",
    ]
    lines += [
        f"  connected app: {app.client_id} / {app.secret_id} / {app.secret_value}"
        for app in options.connected_apps
        if app == CONNECTED_APP
    ]
    if options.tls:
        lines.append(f"  certificate to trust: {certificate_path(options.data_dir)}")
    return "\n".join(lines) + "\n"
