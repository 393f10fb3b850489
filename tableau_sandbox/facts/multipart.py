"""Bodies of several parts, in the form of Tableau's own client."""

_BOUNDARY = "facts"

Part = tuple[str, str, str | bytes]


def multipart(*parts: Part, kind: str = "mixed") -> tuple[bytes, dict[str, str]]:
    """Return a body and its headers; each part has a name, a file name or none, and a content."""
    body = b""
    for name, filename, content in parts:
        file = f'; filename="{filename}"' if filename else ""
        head = f'--{_BOUNDARY}\r\nContent-Disposition: name="{name}"{file}\r\n'
        head += f"Content-Type: {_content_type(filename, content)}\r\n\r\n"
        data = content.encode() if isinstance(content, str) else content
        body += head.encode() + data + b"\r\n"
    body += f"--{_BOUNDARY}--\r\n".encode()
    return body, {"Content-Type": f"multipart/{kind}; boundary={_BOUNDARY}"}


def _content_type(filename: str, content: str | bytes) -> str:
    if filename:
        return "application/octet-stream"
    return "application/json" if content[:1] in ("{", b"{") else "text/xml"
