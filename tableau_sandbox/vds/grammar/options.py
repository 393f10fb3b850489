"""Parse the options of requests from JSON."""

from tableau_sandbox.vds.grammar.json_values import (
    Reader,
    choice,
    fields_of,
    flag,
    whole,
)
from tableau_sandbox.vds.requests import Options, ReturnFormat
from tableau_sandbox.vds.schema import Endpoint, Schema, known_options


def options_of(schema: Schema, endpoint: Endpoint) -> Reader[Options]:
    """Return the reader of an endpoint's options; it refuses those that the version lacks."""
    known = known_options(schema, endpoint)

    def read(value: object, place: str) -> Options:
        fields = fields_of(value, place, known=known)
        return Options(
            debug=fields.optional("debug", flag, False),
            bypass_metadata_cache=fields.optional("bypassMetadataCache", flag, False),
            captions_are_names=fields.optional("interpretFieldCaptionsAsFieldNames", flag, False),
            include_hidden_fields=fields.optional("includeHiddenFields", flag, False),
            include_group_formulas=fields.optional("includeGroupFormulas", flag, False),
            with_new_session=fields.optional("withNewSession", flag, False),
            disaggregate=fields.optional("disaggregate", flag, False),
            return_format=fields.optional(
                "returnFormat", choice(ReturnFormat), ReturnFormat.OBJECTS
            ),
            row_limit=fields.maybe("rowLimit", whole(minimum=1)),
            server_sent_events=fields.optional("returnServerSentEvents", flag, False),
        )

    return read
