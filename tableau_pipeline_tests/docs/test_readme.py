import re

from tableau_pipeline_tests.conftest import Story
from tableau_pipeline_tests.docs.page import README

_MOST_LINES = 150


def test_demo_table(story: Story):
    # Prevents: a first page whose figures nobody can reproduce.
    lines = re.findall(r"^(.*?)  +(NYC \w+)  +(.*?)  +(.*)$", README.sections["Try it"].text, re.M)
    figures = [
        (line.chapter.title, line.datasource, line.decision, line.rows, line.deleted, line.inserted)
        for line in story.lines
    ]
    assert [(*row[:3], *_numbers(row[3])) for row in lines] == figures


def _numbers(text: str) -> list[int]:
    return [int(number.replace(",", "")) for number in text.split()[:3]]


def test_it_is_short():
    # Prevents: a first page that grows until nobody reads it to its end.
    assert len(README.whole.text.splitlines()) <= _MOST_LINES
