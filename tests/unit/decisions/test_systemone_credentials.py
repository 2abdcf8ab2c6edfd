"""Keys: where they come from, when they are read, and that nobody sees them."""

from __future__ import annotations

from pathlib import Path

import pytest

from plannerd.decisions.systemone.credentials import ApiKey

SECRET = "sk-tangerine-1"


def test_no_key() -> None:
    """A host that needs no key gets none."""
    assert ApiKey().current() is None


def test_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """A key comes from the variable that is named, without the spaces around it."""
    monkeypatch.setenv("JEV_KEY", f" {SECRET}\n")
    key = ApiKey(variable="JEV_KEY")
    assert key.current() == SECRET
    assert SECRET not in repr(key)


def test_from_a_file_that_changes(tmp_path: Path) -> None:
    """A key from a file is replaced when the file is; while that is going on, the last one counts."""
    file = tmp_path / "key"
    file.write_text(f"{SECRET}\n")
    key = ApiKey(file=file)
    assert key.current() == SECRET
    other = tmp_path / "new"
    other.write_text("sk-other-22")
    other.replace(file)
    assert key.current() == "sk-other-22"
    file.unlink()
    assert key.current() == "sk-other-22"
    file.write_text("")
    assert key.current() == "sk-other-22"
    file.write_bytes(b"\xff\xfe")
    assert key.current() == "sk-other-22"
    file.write_text("sk-third-333")
    assert key.current() == "sk-third-333"


@pytest.mark.parametrize("content", ["", " \n", "two words", "two\nlines", "größe", "a\x00b", "x" * 9000])
def test_what_is_no_key(content: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What can't be a key is refused at once, naming where it is and not what it is."""
    file = tmp_path / "key"
    file.write_text(content, "utf-8")
    with pytest.raises(ValueError, match="api_key_file") as caught:
        ApiKey(file=file)
    assert str(file) in str(caught.value)
    assert not content.strip() or content not in str(caught.value)
    if "\0" not in content:
        monkeypatch.setenv("JEV_KEY", content)
        with pytest.raises(ValueError, match=r"api_key_env.*JEV_KEY"):
            ApiKey(variable="JEV_KEY")


def test_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A variable that is not set, and a file that is not there, are found at the start."""
    monkeypatch.delenv("JEV_KEY", raising=False)
    with pytest.raises(ValueError, match="JEV_KEY"):
        ApiKey(variable="JEV_KEY")
    with pytest.raises(OSError, match="key"):
        ApiKey(file=tmp_path / "key")


def test_one_place(tmp_path: Path) -> None:
    """A key has one place."""
    with pytest.raises(ValueError, match="both"):
        ApiKey(variable="JEV_KEY", file=tmp_path / "key")
