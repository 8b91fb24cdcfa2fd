"""The list of long tests names tests that exist."""

import re
from pathlib import Path

HERE = Path(__file__).parent


def test_every_long_test_exists():
    listed = (HERE / "long.txt").read_text(encoding="utf-8").splitlines()[1:]
    assert listed == sorted(set(listed))
    for test in listed:
        file, *_, name = test.split("[")[0].split("::")
        source = (HERE.parent / file).read_text(encoding="utf-8")
        assert re.search(rf"def {name}\(", source), f"{test} is not in {file}"
