"""Ways to spoil a request."""

import json
import re
from collections.abc import Callable
from dataclasses import replace
from random import Random

from tableau_sandbox_tests.requests.fuzz_messages import METHODS, Message

Mutation = Callable[[Message, Random], Message]

_METHODS = (*METHODS, "FOO", "get", "", "G\x00T", "X" * 5000)
_PARTS = (
    *("..", ".", "", "%2e%2e%2f%2e%2e%2fetc%2fpasswd", "..%5c..%5c", "%00", "%ff%fe", "%zz", "%"),
    *("../../sandbox.sqlite", "%2Fetc%2Fpasswd", "a" * 5000, "{site}", "*", "'", '"', "%0d%0a"),
    *("\xe4", "%F0%9F%98%80", "-1", "1:x-0:0", "None", "null", "%27%20OR%201=1", "sites", "\x7f"),
)
_QUERIES = (
    *("filter=name:in:[", "filter=" + "," * 20_000, "filter=:::", "filter=name:eq:%00", "filter=a"),
    *("sort=" + "name:asc," * 3_000, "sort=name", "sort=,,:", "pageSize=999999999", "pageSize=-1"),
    *("pageNumber=1e9", "pageNumber=" + "9" * 5_000, "pageNumber=%C2%B2", "%zz=%zz", "&&==&", "a"),
    *("includeExtract=perhaps", "sequenceID=-1", "sequenceID=99999", "asJob=", "overwrite=true"),
    *("uploadSessionId=../../x", "datasourceType=../x", "datasourceType=tdsx", "append=true"),
    *("filter=name:has:" + "%25" * 2_000, "fields=" + "a." * 2_000, "=" * 70_000),
    *("filter=" + "[" * 20_000, "filter=" + "]," * 10_000, "filter=name:in:" + "[,[" * 7_000),
)
_HEADERS = (
    *(("X-Tableau-Auth", value) for value in ("", "a|b|c", "\xe4\xff", "x" * 9_000, "\x00", "|||")),
    *(("Host", value) for value in ("", "[", "[::1", "a:b:c", "\xff", "x" * 2_000, "a/../b?#")),
    *(("Accept", value) for value in ("application/json", "*", "\xff", "application/json;q=\xff")),
    *(
        ("Content-Type", value)
        for value in ("", "application/json", "multipart/mixed", "x" * 9_000)
    ),
    *(("Content-Type", f"multipart/mixed; boundary={b}") for b in ('"', "", "b" * 80, "\xe4", "=")),
    ("Content-Type", "multipart/mixed; boundary*=utf-16''%ff%fe"),
    ("Transfer-Encoding", "chunked"),
    ("Transfer-Encoding", "gzip, chunked"),
    ("Content-Encoding", "gzip"),
    ("Expect", "100-continue"),
    ("Upgrade", "websocket"),
    ("Range", "bytes=5-1"),
    ("X-Forwarded-For", "\x01"),
    ("Bad Name", "x"),
    ("X-HTTP-Method-Override", "DELETE"),
)
_DEEP = 100_000
_XMLS = (
    b"",
    b"<",
    b"\x00" * 100,
    b"<tsRequest>" + b"<a>" * _DEEP + b"</a>" * _DEEP + b"</tsRequest>",
    b"<tsRequest>" + b"<a>" * _DEEP,
    b'<!DOCTYPE x [<!ENTITY a "aaaaaaaaaa"><!ENTITY b "&a;&a;&a;&a;&a;&a;&a;&a;">]><x>&b;</x>',
    b'<!DOCTYPE x [<!ENTITY f SYSTEM "file:///etc/passwd">]><tsRequest>&f;</tsRequest>',
    b'<?xml version="1.0" encoding="utf-16"?><tsRequest/>',
    b'<?xml version="1.0" encoding="utf-7"?><tsRequest/>',
    b'<?xml version="1.0" encoding="idna"?><tsRequest/>',
    b'<?xml version="9.9"?><tsRequest/>',
    '<?xml version="1.0"?><tsRequest/>'.encode("utf-16"),
    b"\xff\xfe<\x00",
    b"<tsRequest xmlns='urn:other'><datasource/></tsRequest>",
    b"<tsRequest><datasource name='" + b"x" * 900_000 + b"'/></tsRequest>",
    b"<tsRequest><datasource "
    + b" ".join(b"a%d='1'" % n for n in range(20_000))
    + b"/></tsRequest>",
    b"<tsRequest>" + b"<tag/>" * 50_000 + b"</tsRequest>",
    b"<tsRequest><tags>" + b"<tag label='x y'/>" * 20_000 + b"</tags></tsRequest>",
    b"<tsRequest><project name='../../../escaped'/></tsRequest>",
    b"<tsRequest><datasource name='../../../escaped&#10;x: y&#13;'/></tsRequest>",
    b"<tsRequest><tags><tag label='../..'/><tag label='&#x10FFFF;'/></tags></tsRequest>",
    b"<tsRequest><datasource name='&#0;'/></tsRequest>",
    b"<tsRequest><?pi x?><!-- <datasource/> --><datasource name='\xff'/></tsRequest>",
)
_JSONS = (
    b"{}",
    b"[" * _DEEP,
    b'{"a":' * 50_000,
    b'{"credentials": {"name": "admin", "password": "admin", "site": {"contentUrl": ""}}}',
    b'{"credentials": NaN}',
    b'{"credentials": "\\ud800"}',
    b'{"datasource": {"name": ' + b"9" * 10_000 + b"}}",
    b'\xef\xbb\xbf{"a": null}',
    b'{"credentials": [1, {}, "x", true]}',
)
_VALUES = (
    *(None, True, False, 0, -1, 1.5, 1e308, float("nan"), 10**400, "", "x", "\x00", "\ud800"),
    *([], {}, [[]], [None], [[["x"]]], [{}], {"": {}}, {"id": None}, {"id": "nowhere"}, ["x", {}]),
    *({"x": "y"}, [{"label": 1}] * 500, "x" * 5_000, {"a": {"b": {"c": {"d": [{"e": "f"}]}}}}),
)
_KEYS = (
    "",
    "id",
    "name",
    "site",
    "project",
    "{x}y",
    "\x00",
    "\ud800",
    "tsRequest",
    "xmlns",
    "k" * 999,
)
_WORDS = (
    b"../../x",
    b"\x00",
    b"&#0;",
    b"'",
    b'"',
    b"%00",
    b"\xff",
    b"<",
    b"]]>",
    b"9" * 400,
    b"&x;",
)


def damage(message: Message, chance: Random) -> Message:
    """The request with other bytes in its body, or without some of them."""
    for _ in range(chance.randint(1, 3)):
        message = chance.choice((_damage, _damage, _cut_out))(message, chance)
    return message


def spoil(message: Message, chance: Random) -> Message:
    """The request with one to three things wrong."""
    for _ in range(chance.randint(1, 3)):
        message = chance.choice(_MUTATIONS)(message, chance)
    return message


def _method(message: Message, chance: Random) -> Message:
    return replace(message, method=chance.choice(_METHODS))


def _path(message: Message, chance: Random) -> Message:
    path, mark, query = message.target.partition("?")
    # An earlier mutation may have left nothing of it.
    parts = path.split("/") if "/" in path else ["", path]
    place = chance.randrange(1, len(parts))
    if chance.random() < 0.2:
        del parts[place]
    else:
        parts[place : place + chance.randint(0, 1)] = [chance.choice(_PARTS)]
    return replace(message, target="/".join(parts) + mark + query)


def _query(message: Message, chance: Random) -> Message:
    path, _, query = message.target.partition("?")
    chosen = chance.choice(_QUERIES)
    return replace(message, target=f"{path}?{chance.choice((chosen, f'{query}&{chosen}'))}")


def _header(message: Message, chance: Random) -> Message:
    name, value = chance.choice(_HEADERS)
    if chance.random() < 0.1:
        return replace(message, headers=(*message.headers, (name, value)))
    return message.with_header(name, value)


def _no_headers(message: Message, chance: Random) -> Message:
    return replace(message, headers=())


def _length(message: Message, chance: Random) -> Message:
    lengths = ("0", "5", "-1", "99999", "1e3", "", "9" * 30, "+3", "0x10")
    return replace(message, length=chance.choice(lengths))


def _body(message: Message, chance: Random) -> Message:
    return replace(message, body=chance.choice((*_XMLS, *_JSONS)))


def _payload(message: Message, chance: Random) -> Message:
    """Another XML or JSON, instead of the XML of a multipart body too."""
    payload = chance.choice((*_XMLS, *_JSONS))
    return replace(
        message, body=re.sub(b"<tsRequest>.*</tsRequest>", lambda _: payload, message.body)
    )


def _cut(message: Message, chance: Random) -> Message:
    return replace(message, body=message.body[: chance.randrange(len(message.body) + 1)])


def _cut_out(message: Message, chance: Random) -> Message:
    begin = chance.randrange(len(message.body) + 1)
    rest = message.body[begin + chance.randint(1, 2_000) :]
    return replace(message, body=message.body[:begin] + rest)


def _insert(message: Message, chance: Random) -> Message:
    # Most of what is read, rather than stored, stands at the beginning.
    place = chance.randrange(min(len(message.body), 600) + 1)
    noise = chance.choice((*_WORDS, chance.randbytes(chance.randint(1, 300))))
    skipped = chance.choice((0, 0, 1, 30))
    return replace(message, body=message.body[:place] + noise + message.body[place + skipped :])


def _damage(message: Message, chance: Random) -> Message:
    """Other bytes anywhere, which is mostly within a file."""
    body = bytearray(message.body)
    for _ in range(chance.randint(1, 20) if body else 0):
        body[chance.randrange(len(body))] = chance.randrange(256)
    return replace(message, body=bytes(body))


def _value(message: Message, chance: Random) -> Message:
    """Another value in one of the attributes."""
    word = chance.choice(_WORDS)
    places = list(re.finditer(rb'"[^"<>]*"', message.body[:2_000]))
    if not places:
        return message
    found = chance.choice(places)
    body = message.body[: found.start()] + b'"' + word + b'"' + message.body[found.end() :]
    return replace(message, body=body)


def _node(message: Message, chance: Random) -> Message:
    """Another JSON value anywhere in the JSON of a body, or of its only line of JSON."""
    found = re.search(rb"^\{.*\}(?=\r?$)", message.body, re.MULTILINE)
    try:
        whole = json.loads(found.group()) if found else None
    # An earlier mutation may have left no JSON.
    except (ValueError, RecursionError):
        whole = None
    if found is None or whole is None:
        return message
    body = json.dumps(_with_other_value(whole, chance)).encode()
    return replace(message, body=message.body[: found.start()] + body + message.body[found.end() :])


def _with_other_value(value: object, chance: Random) -> object:
    """The value with another one somewhere inside, or in its place."""
    if not value or not isinstance(value, dict | list) or chance.random() < 0.2:
        return chance.choice(_VALUES)
    if isinstance(value, list):
        place = chance.randrange(len(value))
        return [*value[:place], _with_other_value(value[place], chance), *value[place + 1 :]]
    key = chance.choice(list(value))
    changed = {**value, key: _with_other_value(value[key], chance)}
    return {**changed, chance.choice(_KEYS): changed.pop(key)} if chance.random() < 0.1 else changed


def _repeat(message: Message, chance: Random) -> Message:
    """The same parts again, or many empty ones."""
    doubled = message.body + message.body
    many = b"--b\r\n\r\n" * 5_000 + message.body
    wide = b"--b\r\n" + b"X: y\r\n" * 5_000 + b"\r\n" + message.body
    long = b"--b\r\nContent-Disposition: name=" + b"x;" * 50_000 + b"\r\n\r\n" + message.body
    return replace(message, body=chance.choice((doubled, many, wide, long)))


def _lines(message: Message, chance: Random) -> Message:
    return replace(message, body=message.body.replace(b"\r\n", chance.choice((b"\n", b"\r", b""))))


_MUTATIONS: tuple[Mutation, ...] = (
    *(_method, _path, _path, _query, _query, _header, _header, _no_headers, _length),
    *(_body, _payload, _payload, _cut, _insert, _insert, _damage, _value, _value, _repeat, _lines),
    *(_node, _node, _node),
)
