from urllib.parse import unquote


def path_matches(pattern: str, raw_path: bytes) -> bool:
    """Whether a path under `/api/{version}/` matches the pattern of a fault."""
    if pattern == "**":
        return True
    path = raw_path.decode("ascii", "replace").removeprefix("/api").strip("/")
    # The path is divided while it is still encoded, because a name may contain a slash.
    segments = [unquote(segment) for segment in path.split("/")[1:]]
    expected = pattern.strip("/").split("/")
    return len(expected) == len(segments) and all(
        part == "*" or part.startswith("{") or part == segment
        for part, segment in zip(expected, segments, strict=True)
    )
