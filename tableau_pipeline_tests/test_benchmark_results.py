"""Figures of benchmarks that are kept, and what got worse since."""

import json
from pathlib import Path

from benchmarks import results


def test_only_what_got_worse_is_told(tmp_path: Path):
    """Prevents: a change that costs a tenth more, which nobody sees among two hundred figures; or
    noise that hides it."""
    file, before = tmp_path / "results.json", {}
    for values in ((1.0, 1.1, 0.9), (1.2, 1.2, 0.9)):
        before = json.loads(file.read_text()) if file.exists() else {}
        assert results.figure("seconds", values).startswith(f"{values[0]:.2f} (0.90 to")
        results.figure("speed", [10 / values[0]], more_is_better=True)
        results.figure("noise", [values[0] ** 0.2])
        results.write("one", file)
    after = json.loads(file.read_text())
    assert after["one"]["figures"]["seconds"]["runs"] == 3
    assert [*results.worse(before, after)] == [
        "one: seconds: 1 -> 1.2 (+20%)",
        "one: speed: 10 -> 8.33 (-17%)",
    ]
    assert [*results.worse(after, before)] == []
    assert [*results.worse({}, after)] == []
