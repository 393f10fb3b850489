"""Queries by the hundred, sound and spoilt: the service answers, or refuses as it should."""

import re
from pathlib import Path

import pytest
import requests
import tableauserverclient as tsc
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tableau_sandbox.testing import Sandbox
from tableau_sandbox.vds.schema import Schema
from tableau_sandbox_tests.samples import execute, publish
from tableau_sandbox_tests.vds.service.asking import ask, refused
from tableau_sandbox_tests.vds.service.fuzz_bodies import (
    TABLE,
    TYPE_OF,
    TYPES,
    queries,
    spoilt,
)
from tableau_sandbox_tests.vds.service.test_quirks import ENDPOINTS

FEW = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))
MANY = settings(FEW, max_examples=1_000)


@pytest.fixture(scope="module")
def types(admin: tsc.Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The LUID of a data source with columns of all types, and names that need quotes."""
    file: Path = tmp_path_factory.mktemp("files") / "types.hyper"
    return publish(admin, execute(file, *TYPES), name="Types").id


def check_sound(answer: requests.Response) -> None:
    """It has rows, unless the sandbox does not emulate it."""
    if answer.status_code != 200:
        assert refused(answer) == "501000", answer.text
        assert re.search("(WEEK|COLLECT): not emulated", answer.json()["message"]), answer.text


def check_spoilt(answer: requests.Response) -> None:
    """It is an answer, or a refusal that is no failure of the service."""
    if answer.status_code != 200:
        code = refused(answer)
        assert code[0] == "4" or code == "501000", answer.text


def ask_anything(vds: Sandbox, admin: tsc.Server, luid: str, data: st.DataObject) -> None:
    body = data.draw(queries(luid))
    check_sound(ask(vds, admin, "query-datasource", body))
    endpoint = data.draw(st.sampled_from([*ENDPOINTS]))
    with vds.quirks(vds_schema=data.draw(st.sampled_from([*Schema]))):
        check_spoilt(ask(vds, admin, endpoint, data=data.draw(spoilt(body))))
        check_spoilt(ask(vds, admin, "query-datasource", data=data.draw(spoilt(body))))


@FEW
@given(data=st.data())
def test_queries(vds: Sandbox, admin: tsc.Server, types: str, data: st.DataObject):
    """Prevents: a query that no client should send fails the service."""
    ask_anything(vds, admin, types, data)


@pytest.mark.slow
@MANY
@given(data=st.data())
def test_many_queries(vds: Sandbox, admin: tsc.Server, types: str, data: st.DataObject):
    """Prevents: a failure that only thousands of queries find."""
    ask_anything(vds, admin, types, data)


def test_all_names_and_types(vds: Sandbox, admin: tsc.Server, types: str):
    """Prevents: a name that needs quotes cannot be asked for, or a value is no JSON."""
    body = {"datasource": {"datasourceLuid": types}}
    fields = ask(vds, admin, "read-metadata", body).json()["data"]
    assert [each["fieldName"] for each in fields] == [*TYPE_OF]
    names = [*TYPE_OF]
    quoted = "[" + TABLE.replace("]", "]]") + "]"
    asked = [
        {"fieldCaption": "number", "calculation": f"COUNT({quoted})"},
        *({"fieldCaption": name, "function": "MAX"} for name in names[:12]),
    ]
    answer = ask(vds, admin, "query-datasource", {**body, "query": {"fields": asked}})
    assert answer.json()["data"] == [
        {
            "number": 3,
            "MAX(i)": 2,
            "MAX(big)": 9223372036854775807,
            "MAX(n)": 0.1,
            "MAX(x)": None,
            "MAX(t)": "one",
            "MAX(c)": "ab ",
            "MAX(a ] b)": "x",
            'MAX(qu"ote)': "y",
            "MAX(f)": True,
            "MAX(d)": "2024-02-29",
            "MAX(ts)": "2024-02-29T23:59:59.999999",
            "MAX(tz)": "2024-02-29T21:59:59",
        }
    ]
    for unknown in names[12:]:
        asked = [{"fieldCaption": unknown}]
        answer = ask(vds, admin, "query-datasource", {**body, "query": {"fields": asked}})
        assert refused(answer) == "501000"
