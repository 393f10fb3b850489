"""Answers in the forms that Tableau's documents and public recordings show."""

from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass

from tableau_pipeline.publishing.site import TableauSite
from tableau_pipeline_tests.publishing.hostile import Answer, Call, Front

LUID = "9dbd0000-16b5-46e1-9c43-a76bb8ab65fb"
OTHER = "9dbd0000-16b5-46e1-9c43-a76bb8ab65fc"
ITEM = f"sites/[^/]+/datasources/{LUID}"
# The beginning of every answer. The address of the schema changes with each release.
_BEGIN = (
    '<tsResponse xmlns="http://tableau.com/api" xmlns:xsi="http://www.w3.org/2001/XMLSchema-instance"'
    ' xsi:schemaLocation="http://tableau.com/api https://help.example.com/ts-api_3_25.xsd">'
)


def xml(body: str) -> Answer:
    """Answers 200 with a `tsResponse` around the body."""
    return raw(f'<?xml version="1.0" encoding="UTF-8"?>{_BEGIN}{body}</tsResponse>'.encode())


def page(name: str, *items: str, total: int | None = None) -> Answer:
    """Answers with one page of a list. `total` is the length of a list that has more pages."""
    count = len(items) if total is None else total
    pagination = f'<pagination pageNumber="1" pageSize="1000" totalAvailable="{count}"/>'
    return xml(f"{pagination}<{name}>{''.join(items)}</{name}>")


def error(status: int, code: str, detail: str = "no") -> Answer:
    """Answers with an error in Tableau's form."""
    said = f"<summary>Refused</summary><detail>{detail}</detail>"
    body = f'{_BEGIN}<error code="{code}">{said}</error></tsResponse>'
    return raw(body.encode(), status=status)


def raw(body: bytes, *, status: int = 200, **headers: str) -> Answer:
    """Answers with the body as it is."""
    kind = {"Content_Type": "application/xml;charset=utf-8"}
    return lambda call: call.whole(status, body, **{**kind, **headers})


@dataclass(frozen=True)
class Server:
    """A session on a server that can answer calls with recorded answers."""

    site: TableauSite
    front: Front

    @contextmanager
    def saying(self, method: str, pattern: str, answer: Answer) -> Generator[list[str]]:
        """Answer the calls that match; yield a list of their paths with queries."""
        asked: list[str] = []

        def respond(call: Call) -> None:
            asked.append(call.path)
            answer(call)

        with self.front.answering(method, pattern, respond):
            yield asked
