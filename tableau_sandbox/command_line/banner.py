from tableau_sandbox.command_line.credentials import PASSWORD, TOKEN_SECRET
from tableau_sandbox.http.certificate import certificate_path
from tableau_sandbox.options import (
    ADMIN,
    CONNECTED_APP,
    Options,
)


def banner(url: str, options: Options) -> str:
    """Return what a sandbox prints when it is ready; the first line has its URL.

    It contains well-known secrets only.
    """
    admin = options.admin
    ((token_name, token_secret),) = admin.tokens
    password = admin.password if admin.password == ADMIN.password else f"${PASSWORD}"
    secret = token_secret if token_secret == ADMIN.tokens[0][1] else f"${TOKEN_SECRET}"
    lines = [
        f"Tableau sandbox ready at {url} (REST API {options.rest_version}, data in"
        f" {options.data_dir})",
        f"  user: {admin.name} / {password}",
        f"  personal access token: {token_name} / {secret}",
    ]
    lines += [
        f"  connected app: {app.client_id} / {app.secret_id} / {app.secret_value}"
        for app in options.connected_apps
        if app == CONNECTED_APP
    ]
    if options.tls:
        lines.append(f"  certificate to trust: {certificate_path(options.data_dir)}")
    return "\n".join(lines) + "\n"
