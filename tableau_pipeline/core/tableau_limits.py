"""Tableau's limits on texts, tags and payloads, and checks of declarations against them."""

from typing import Any

from tableau_pipeline.yaml_keys import mistake, not_for_tableau, texts_in

# The largest payload of an update in bytes: Tableau's limit of 100 MB less 5 %. The margin is for
# two facts that Tableau does not document: the size of a megabyte, and whether a payload may have
# exactly 100 MB.
LARGEST_PAYLOAD = 95 * 10**6
# The limit of a tag, in characters.
_LONGEST_TAG = 200


def check_texts(declared: Any, tag: str) -> None:
    """Check all texts of a declaration.

    Args:
        tag: the tag by which a refresh finds the data source. The tag contains the key.

    Raises:
        ValidationError: a text has a character that Tableau cannot store, or the tag is too long.
    """
    for at, text in texts_in(declared):
        if character := not_for_tableau(text):
            raise mistake(at, f"{text!r} has the character {character}, which Tableau cannot hold")
    if problem := long_tag(tag):
        raise mistake(("key",), problem)


def long_tag(tag: str) -> str | None:
    """Return a problem if the tag of a data source is too long; otherwise None."""
    if len(tag) <= _LONGEST_TAG:
        return None
    return f'its tag "{tag}" has more than {_LONGEST_TAG} characters: set a shorter `key`'
