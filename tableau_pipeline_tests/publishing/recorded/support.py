"""Answers with the shapes of those that Tableau's documents and public recordings show."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline_tests.publishing.hostile import Answer, Call, Front

LUID = "9dbd0000-16b5-46e1-9c43-a76bb8ab65fb"
OTHER = "9dbd0000-16b5-46e1-9c43-a76bb8ab65fc"
ITEM = f"sites/[^/]+/datasources/{LUID}"
# As all of them begin, with a schema's address that changes with each release.
_BEGIN = (
    '<tsResponse xmlns="http://tableau.com/api" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'
    ' xsi:schemaLocation="http://tableau.com/api https://help.example.com/ts-api_3_25.xsd">'
)


def xml(body: str) -> Answer:
    """Answers 200 with this in a `tsResponse`."""
    return raw(f'<?xml version="1.0" encoding="UTF-8"?>{_BEGIN}{body}</tsResponse>'.encode())


def page(name: str, *items: str, total: int | None = None) -> Answer:
    """Answers with a page of a list of this name, which has all of its items unless it is cut."""
    count = len(items) if total is None else total
    pagination = f'<pagination pageNumber="1" pageSize="1000" totalAvailable="{count}"/>'
    return xml(f"{pagination}<{name}>{''.join(items)}</{name}>")


def error(status: int, code: str, detail: str = "no") -> Answer:
    """Answers with an error in Tableau's words."""
    said = f"<summary>Refused</summary><detail>{detail}</detail>"
    body = f'{_BEGIN}<error code="{code}">{said}</error></tsResponse>'
    return raw(body.encode(), status=status)


def raw(body: bytes, *, status: int = 200, **headers: str) -> Answer:
    """Answers with this body."""
    kind = {"Content_Type": "application/xml;charset=utf-8"}
    return lambda call: call.whole(status, body, **{**kind, **headers})


@dataclass(frozen=True)
class Server:
    """A session on a server that answers some calls as they were recorded elsewhere."""

    site: TableauSite
    front: Front

    @contextmanager
    def saying(self, method: str, pattern: str, answer: Answer) -> Generator[list[str]]:
        """Answer such calls; yield the paths and queries that were asked for."""
        asked: list[str] = []

        def respond(call: Call) -> None:
            asked.append(call.path)
            answer(call)

        with self.front.answering(method, pattern, respond):
            yield asked
