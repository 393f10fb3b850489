"""A catalog that hands out credentials, and a store that requires them for one table."""

import base64
import hashlib
import hmac
import io
import json
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from threading import Thread
from typing import ClassVar, NoReturn, cast
from urllib.parse import parse_qs, quote, unquote, urlencode, urlsplit

import obstore
from obstore.store import ObjectStore
from pyiceberg.io import FileIO, InputFile, InputStream, OutputFile, OutputStream
from pyiceberg.table import Table

from tableau_pipeline.objects.stores import bucket_and_key
from tableau_pipeline_tests.deployment.object_stores import (
    AZURE_ACCOUNT,
    AZURE_KEY,
    AzureServer,
    GcsServer,
    ObjectServer,
    S3Server,
)
from tableau_pipeline_tests.publishing.hostile import Call, Front, front_of
from tableau_pipeline_tests.refresh.lakes.aws_signatures import is_signed, sign

_HOST = f"{AZURE_ACCOUNT}.dfs.core.windows.net"
_MARK = "handed-out"
# All credentials for S3 have this key. Their secrets and tokens differ.
_KEY = "a-key-for-orders"


class Gate:
    """A server in front of a store. It refuses requests with credentials of the wrong kind.

    Requests for the guarded folder need credentials that were handed out and have not expired. All
    other requests need the credentials of the environment.

    Attributes:
        guarded: a part of the keys in the guarded folder; "" if there is none.
        seconds: how long credentials are valid.
        accepts: whether credentials that were handed out are accepted.
        refused: the paths of the requests that were refused.
        secrets: all secrets that were handed out.
    """

    def __init__(self, server: ObjectServer, front: Front) -> None:
        self.server, self._front = server, front
        self.guarded, self.seconds, self.accepts = "", 3600.0, True
        self.refused: list[str] = []
        self.secrets: list[str] = []
        self._expiry: dict[str, float] = {}
        self._numbers = count()

    @property
    def settings(self) -> Mapping[str, str]:
        """The variables of a client, with credentials that the guarded folder refuses."""
        port = self._front.server_port
        if isinstance(self.server, AzureServer):
            return {
                "AZURE_STORAGE_ENDPOINT": f"http://127.0.0.1:{port}/{AZURE_ACCOUNT}",
                "AZURE_STORAGE_ACCOUNT_KEY": AZURE_KEY,
            }
        return self.server.settings_at(port)

    def issue(self) -> dict[str, str]:
        """Hand out new credentials, as properties of Iceberg."""
        secret, until = f"{_MARK}-{next(self._numbers)}", time.time() + self.seconds
        expiry = str(int(until * 1000))
        match self.server:
            case S3Server():
                given = {
                    "s3.access-key-id": _KEY,
                    "s3.secret-access-key": f"key-of-{secret}",
                    "s3.session-token": secret,
                    "s3.session-token-expires-at-ms": expiry,
                    "s3.endpoint": f"http://localhost:{self._front.server_port}",
                    "s3.path-style-access": "true",
                    "client.region": "us-east-1",
                }
            case GcsServer():
                given = {"gcs.oauth2.token": secret, "gcs.oauth2.token-expires-at": expiry}
            case _:
                sas, secret = _sas(secret)
                given = {
                    f"adls.sas-token.{_HOST}": sas,
                    f"adls.sas-token-expires-at-ms.{_HOST}": expiry,
                }
        self._expiry[secret] = until
        self.secrets += [secret, quote(secret, safe="")]
        return given

    def check(self, call: Call) -> None:
        """Pass a request on to the store, or refuse the request."""
        secret = self._secret_of(call)
        is_guarded = bool(self.guarded) and self.guarded in unquote(call.path)
        is_right = self._is_valid(secret, call) if is_guarded else secret is None
        if is_right:
            call.close_connection = False
            if is_guarded and isinstance(self.server, S3Server):
                # The server knows one key, and no session tokens.
                keys = self.server.settings
                sign(call, keys["AWS_ACCESS_KEY_ID"], keys["AWS_SECRET_ACCESS_KEY"])
            return call.pass_back(call.handed_on())
        self.refused.append(call.path)
        return call.whole(403, b"<Error><Code>InvalidToken</Code><Message>No</Message></Error>")

    def _is_valid(self, secret: str | None, call: Call) -> bool:
        if not self.accepts or time.time() >= self._expiry.get(secret or "", 0):
            return False
        # Only the endpoint that the catalog hands out has this host name.
        is_there = "localhost" in call.headers["Host"]
        is_s3 = isinstance(self.server, S3Server)
        return not is_s3 or (is_there and is_signed(call, _KEY, f"key-of-{secret}"))

    def _secret_of(self, call: Call) -> str | None:
        match self.server:
            case S3Server():
                return call.headers["x-amz-security-token"]
            case GcsServer():
                return (call.headers["Authorization"] or "").removeprefix("Bearer ") or None
            case _:
                return parse_qs(urlsplit(call.path).query).get("sig", [None])[0]


@contextmanager
def gate_before(server: ObjectServer) -> Generator[Gate]:
    """Run a gate in front of a store."""
    with front_of(f"http://127.0.0.1:{server.port}") as front:
        gate = Gate(server, front)
        with front.answering(".*", ".*", gate.check):
            yield gate


def _sas(mark: str) -> tuple[str, str]:
    """Return the shared access signature for an account of Azure, and its secret part."""
    # The start times differ, so that each signature has a secret of its own.
    start = f"2020-01-01T00:{int(mark.rpartition('-')[2]) % 60:02}:00Z"
    fields = {"sp": "rl", "ss": "b", "srt": "sco", "st": start, "se": "2099-01-01T00:00:00Z"}
    text = "\n".join((AZURE_ACCOUNT, *fields.values(), "", "", "2019-12-12", ""))
    digest = hmac.new(base64.b64decode(AZURE_KEY), text.encode(), hashlib.sha256).digest()
    signature = base64.b64encode(digest).decode()
    return urlencode({"sv": "2019-12-12", **fields, "sig": signature}), signature


class VendingCatalog:
    """A REST catalog.

    Attributes:
        tables: the tables by name.
        vends: the names of the tables for which it hands out credentials on request.
        loads: the number of times that a table was loaded.
        failure: the body of an error in place of each table; "" for no error.
    """

    url: str

    def __init__(self, gate: Gate) -> None:
        self._gate = gate
        self.tables: dict[str, Table] = {}
        self.vends: set[str] = set()
        self.loads = 0
        self.failure = ""

    @contextmanager
    def running(self) -> Generator["VendingCatalog"]:
        catalog = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                delegation = self.headers["X-Iceberg-Access-Delegation"]
                status, body = catalog.answer(self.path, delegation)
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            self.url = f"http://127.0.0.1:{server.server_port}"
            thread = Thread(target=server.serve_forever, args=(0.01,))
            thread.start()
            yield self
            server.shutdown()
            thread.join()

    def answer(self, path: str, delegation: str | None) -> tuple[HTTPStatus, bytes]:
        if "/config" in path:
            return HTTPStatus.OK, json.dumps({"defaults": {}, "overrides": {}}).encode()
        if self.failure:
            return HTTPStatus.INTERNAL_SERVER_ERROR, self.failure.encode()
        self.loads += 1
        name = urlsplit(path).path.rpartition("/")[2]
        table = self.tables[name]
        answer = {
            "metadata": json.loads(table.metadata.model_dump_json()),
            "metadata-location": table.metadata_location,
        }
        if name in self.vends and delegation == "vended-credentials":
            given = self._gate.issue()
            # Catalogs put credentials into one of two places.
            if self.loads % 2:
                answer["config"] = given
            else:
                wrong = {"s3.access-key-id": "a", "s3.secret-access-key": "b"}
                answer["config"] = wrong
                answer["storage-credentials"] = [{"prefix": table.location(), "config": given}]
        return HTTPStatus.OK, json.dumps(answer).encode()


class StoreIO(FileIO):
    """Lets pyiceberg write to a store of any kind."""

    store: ClassVar[ObjectStore]

    def new_input(self, location: str) -> "_Object":
        return _Object(location)

    def new_output(self, location: str) -> "_Object":
        return _Object(location)

    def delete(self, location: str | InputFile | OutputFile) -> NoReturn:
        raise NotImplementedError


class _Object(InputFile, OutputFile):
    @property
    def key(self) -> str:
        return bucket_and_key(self.location)[1]

    def __len__(self) -> int:
        return obstore.head(StoreIO.store, self.key)["size"]

    def exists(self) -> bool:
        try:
            return len(self) >= 0
        except FileNotFoundError:
            return False

    def open(self, seekable: bool = True) -> InputStream:
        content = bytes(obstore.get(StoreIO.store, self.key).bytes())
        return cast("InputStream", io.BytesIO(content))

    def to_input_file(self) -> "_Object":
        return self

    def create(self, overwrite: bool = False) -> OutputStream:
        return cast("OutputStream", _Upload(self.key))


class _Upload(io.BytesIO):
    def __init__(self, key: str) -> None:
        super().__init__()
        self._key = key

    def close(self) -> None:
        if not self.closed:
            obstore.put(StoreIO.store, self._key, self.getvalue())
        super().close()
