"""What a dataset can be called, and what it cannot."""

from typing import Any

import pytest

from lakelog.log.validation.actions import name_problem


@pytest.mark.parametrize(
    "name",
    [
        "events",
        "é",
        "日本",
        "a b",
        "a.b",
        "'; DROP TABLE x; --",
        '"',
        "100%",
        "_",
        "*",
        "a" * 255,
        "...",
        "-",
        "😀",
        "a:b",
    ],
)
def test_a_dataset_can_have_the_name(name: str) -> None:
    assert name_problem(name) is None


@pytest.mark.parametrize(
    "name",
    [
        "",
        " ",
        " a",
        "a ",
        "\ta",
        "a\u00a0",
        ".",
        "..",
        "a/b",
        "../x",
        "a\\b",
        "a\0",
        "a\nb",
        "a\x7f",
        "a\u200bb",
        "a\u202eb",
        "\ufeffa",
        "a\ud800",
        "a" * 256,
        "é" * 128,
        None,
        3,
        b"x",
    ],
    ids=ascii,
)
def test_a_dataset_cannot_have_the_name(name: Any) -> None:
    assert name_problem(name)
