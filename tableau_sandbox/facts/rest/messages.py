"""Publishing in other forms that clients send: terse parts, other letters, other types of files."""

import zipfile
from io import BytesIO
from xml.sax.saxutils import quoteattr

import pyarrow as pa
from pyarrow import parquet

from tableau_sandbox.facts.answer import Answer, attribute, expect
from tableau_sandbox.facts.fact import writes
from tableau_sandbox.facts.files import hyper_file, packaged_hyper, rows_file, rows_of
from tableau_sandbox.facts.playground import ROWS, Playground
from tableau_sandbox.facts.sources import (
    JSON_CLIENTS,
    LIVE_TESTS,
    NOBODY,
    PUBLISH_GUIDE,
    TSC,
    UPDATE_GUIDE,
)

_PUBLISH = "POST sites/{site}/datasources"


def _send(play: Playground, name: str, *heads: str) -> Answer:
    """Publish the first rows with these heads of the request and of the file."""
    body = b""
    for head, content in zip(heads, (play.request(name).encode(), rows_file(*ROWS)), strict=True):
        body += f"--b\r\nContent-Disposition: {head}\r\n\r\n".encode() + content + b"\r\n"
    headers = {"Content-Type": "multipart/mixed; boundary=b"}
    return play.ask("POST", "datasources", body + b"--b--\r\n", headers=headers).succeeds(201)


@writes(_PUBLISH, LIVE_TESTS)
def parts_without_quotes(play: Playground) -> None:
    """The heads of parts need neither quotes nor content types."""
    _send(
        play, play.new_name(), "name=request_payload", "name=tableau_datasource; filename=f.hyper"
    )


@writes(_PUBLISH, JSON_CLIENTS)
def parts_of_a_form(play: Playground) -> None:
    """The parts may be called form-data, and the request may have an empty file name."""
    request = 'form-data; name="request_payload"; filename=""'
    file = 'form-data; name="tableau_datasource"; filename="f.hyper"'
    _send(play, play.new_name(), request, file)


@writes(_PUBLISH, TSC)
def file_name_in_other_letters(play: Playground) -> None:
    """The name of a file may have letters of all alphabets, and names nothing."""
    name = play.new_name()
    file = 'name="tableau_datasource"; filename="\N{GREEK SMALL LETTER OMEGA} %22x%22.hyper"'
    answer = _send(play, name, 'name="request_payload"', file)
    expect(name, attribute(answer.element("datasource"), "name"))


@writes(_PUBLISH, TSC)
def name_in_other_letters(play: Playground) -> None:
    """A name may have letters of all alphabets, written as references to characters."""
    name = play.new_name(" \N{LATIN SMALL LETTER SHARP S}\N{GREEK SMALL LETTER OMEGA} & <x>")
    parts = (
        ("request_payload", "", play.request(name).encode("ascii", "xmlcharrefreplace")),
        ("tableau_datasource", "file.hyper", rows_file(*ROWS)),
    )
    answer = play.send_parts("POST", "datasources", *parts).succeeds(201)
    expect(name, attribute(answer.element("datasource"), "name"))


@writes(_PUBLISH, TSC)
def description_of_a_publish(play: Playground) -> None:
    """A publish describes the data source, and may bring credentials along."""
    request = (
        f"<tsRequest><datasource name={quoteattr(play.new_name())} description='Seen'>"
        '<connectionCredentials name="somebody" password="secret" embed="true"/>'
        f"<project id={quoteattr(play.project)}/></datasource></tsRequest>"
    )
    parts = ("request_payload", "", request), ("tableau_datasource", "f.hyper", rows_file(*ROWS))
    answer = play.send_parts("POST", "datasources", *parts).succeeds(201)
    luid = attribute(answer.element("datasource"), "id")
    record = play.ask("GET", f"datasources/{luid}").succeeds(200).element("datasource")
    expect("Seen", attribute(record, "description"))


@writes(_PUBLISH, UPDATE_GUIDE)
def published_parquet(play: Playground) -> None:
    """A Parquet file becomes a .hyper file with its rows, behind one connection."""
    buffer = BytesIO()
    parquet.write_table(pa.table({"id": [1, 2]}), buffer)
    target = play.published(buffer.getvalue(), suffix="parquet")
    answer = play.ask("GET", f"{target.path}/connections").succeeds(200)
    expect(1, len(answer.elements("connections/connection")))
    content = play.ask("GET", f"{target.path}/content").succeeds(200).content
    with zipfile.ZipFile(BytesIO(content)) as package:
        expect(1, len([name for name in package.namelist() if name.endswith(".hyper")]))


@writes(_PUBLISH, TSC)
def published_package(play: Playground) -> None:
    """A package that was downloaded can be published again, with its rows."""
    content = play.ask("GET", f"{play.shared.path}/content").succeeds(200).content
    target = play.published(content, suffix="tdsx")
    expect([*ROWS], play.rows(target))


@writes(_PUBLISH, PUBLISH_GUIDE)
def related_tables_without_integrity(play: Playground) -> None:
    """Nobody checks whether assumed foreign keys lead to rows that exist."""
    file = hyper_file(
        'CREATE TABLE "Extract"."One" (id INTEGER NOT NULL, ASSUMED PRIMARY KEY (id))',
        'CREATE TABLE "Extract"."Two" (id INTEGER)',
        'ALTER TABLE "Extract"."Two" ADD ASSUMED FOREIGN KEY (id) REFERENCES "Extract"."One" (id)',
        'INSERT INTO "Extract"."Two" VALUES (1)',
    )
    target = play.published(file)
    content = play.ask("GET", f"{target.path}/content").succeeds(200).content
    expect([(1,)], rows_of(packaged_hyper(content)[1], table='"Extract"."Two"'))


@writes(_PUBLISH, PUBLISH_GUIDE)
def file_without_tables(play: Playground) -> None:
    """A .hyper file without a table is refused with 400011."""
    play.publish(play.new_name(), hyper_file()).is_refused("400011")


@writes(_PUBLISH, NOBODY)
def longest_name(play: Playground) -> None:
    """A name may have 255 characters, and not 256: 400000."""
    name = play.new_name()
    play.publish(name + "x" * (255 - len(name))).succeeds(201)
    play.publish(name + "x" * (256 - len(name))).is_refused("400000")
