import errno
import fcntl
import json
import os

import msgspec
import pytest

from albert_tf import files, folders
from albert_tf.errors import UserError


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """Three text files, one of another kind, and a folder with the name of a text file."""
    for name in ("b.txt", "a.txt", "c.txt", "other.md"):
        (tmp_path / name).write_text(name)
    (tmp_path / "folder.txt").mkdir()
    (tmp_path / "folder.txt" / "inside.txt").write_text("inside")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_patterns_are_sorted_within_and_kept_in_order(folder):
    assert files.expand(["c.txt", "*.txt"], "--x") == ["c.txt", "a.txt", "b.txt"]
    assert files.expand(["other.md", "[ab].txt"], "--x") == ["other.md", "a.txt", "b.txt"]
    assert files.expand(["./c*", "c.txt"], "--x") == ["c.txt"]
    assert files.expand(["folder.txt/*"], "--x") == [os.path.join("folder.txt", "inside.txt")]
    (folder / "a[1].txt").touch()
    assert files.expand(["a[1].txt"], "--x") == ["a[1].txt"]


@pytest.mark.parametrize(
    ("patterns", "message"),
    [
        (["a.txt", "zebra"], "no file matches 'zebra'. Searched in '{}'."),
        (["othr.md"], "no file matches 'othr.md'. Did you mean 'other.md'?"),
        (["/nowhere*.txt"], "no file matches '/nowhere*.txt'."),
        (["folder.txt"], "no file matches 'folder.txt'. It is a folder: pass the files in it."),
        (["no/*"], "no file matches 'no/*'. There is no folder 'no': check its name."),
        ([], "pass at least one file."),
    ],
)
def test_a_pattern_without_files_is_named(folder, patterns, message):
    with pytest.raises(UserError) as error:
        files.expand(patterns, "--input")
    assert str(error.value) == f"--input: {message.format(folder)}"


def test_replacing_shows_the_file_only_when_it_is_whole(folder):
    """Two at once do not write the same temporary file."""
    path = folder / "a.txt"
    with files.replacing(str(path)) as first, files.replacing(str(path)) as second:
        assert first != second
        for temporary in (first, second):
            assert os.path.dirname(temporary) == str(folder)
            files.append_line(temporary, "new")
        assert path.read_text() == "a.txt"
    assert path.read_text() == "new\n"
    assert len(os.listdir(folder)) == 5


@pytest.mark.parametrize("starts", [False, True])
def test_replacing_leaves_nothing_on_failure(folder, starts):
    before = sorted(os.listdir(folder))
    with pytest.raises(KeyboardInterrupt), files.replacing(str(folder / "a.txt")) as temporary:
        if starts:
            files.append_line(temporary, "half")
        raise KeyboardInterrupt
    assert (folder / "a.txt").read_text() == "a.txt"
    assert sorted(os.listdir(folder)) == before


def test_json_is_written_for_readers_and_read_again(folder):
    path, value = folder / "value.json", {"b": [1, 2.5, None], "a": "é \ufeff 文"}
    files.write_json(str(path), value)
    text = path.read_text(encoding="utf-8")
    assert text == json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    path.write_text(f"\ufeff{text}", encoding="utf-8")  # a byte order mark is no content
    assert files.read_json(str(path), "--x") == value


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, r"'x\.json' is a folder, not a file\."),
        (b"a.txt", r"'x\.json' is not JSON: "),
        (b'{"a": {"b": 1, "c": 2, "b": 1}}', r"'x\.json' is not JSON: the key 'b' appears twice"),
        ('{\n"a": "é"}'.encode("latin-1"), r"'x\.json', line 2: this is not UTF-8\. Convert the"),
        ("{}".encode("utf-16"), r"'x\.json' is UTF-16: convert it to UTF-8 \(iconv"),
        ("{}".encode("utf-16-be"), r"'x\.json', line 1: there is a NUL byte, which text never has"),
        (b"\x1f\x8b\x08", r"'x\.json' is compressed: unpack it"),
    ],
)
def test_what_cannot_be_read_is_one_sentence(folder, content, message):
    with pytest.raises(UserError, match=r"^--x: there is no file 'x\.json'\.$"):
        files.read_json("x.json", "--x")
    (folder / "x.json").mkdir() if content is None else (folder / "x.json").write_bytes(content)
    with pytest.raises(UserError, match=f"^--x: {message}") as caught:
        files.read_json("x.json", "--x")
    assert "\n" not in str(caught.value)


class Written(msgspec.Struct):
    steps: list[int]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{"steps": [1, "2"]}', "is damaged: Expected `int`, got `str` - at `$.steps[1]`. Use"),
        ('{"step": []}', "is damaged: Object missing required field `steps`. Use the "),
        ('{"steps": [1', "is not JSON"),
        ("[" * 99_999, "is damaged: maximum recursion depth exceeded"),
    ],
)
def test_the_first_wrong_field_of_a_file_is_named(folder, content, message):
    (folder / "x.json").write_text('{"steps": [1], "more": [NaN, "\\ud800"]}')
    assert files.read_as("x.json", Written) == Written([1])
    (folder / "x.json").write_text(content)
    with pytest.raises(UserError) as caught:
        files.read_as("x.json", Written)
    assert message in str(caught.value)
    assert "x.json" in str(caught.value)


def test_a_pipe_is_refused(folder):
    os.mkfifo(folder / "pipe")
    with pytest.raises(UserError, match="'pipe' is a pipe or a device"):
        files.read_bytes("pipe", "--x")


def write_text(folder):
    files.write_bytes(os.path.join(folder, "text"), b"text")


def test_a_second_process_in_a_folder_is_refused_while_the_first_has_it(tmp_path):
    """The lock is dropped with the file that is open, and so with the process."""
    place = str(tmp_path / "new" / "folder")
    with folders.locking(place):
        with pytest.raises(UserError) as error, folders.locking(place):
            pass
        assert str(error.value) == (
            f"{place} is in use by another process. Wait until it has ended, stop it, or use "
            "another folder."
        )
    assert os.listdir(tmp_path) == []  # it was made, and stayed empty
    os.makedirs(place)
    open(os.path.join(place, folders.LOCK), "w").close()  # of a killed process
    with folders.locking(place):
        write_text(place)
    assert os.listdir(place) == ["text"]


def test_what_killed_processes_left_of_a_folder_is_removed(tmp_path):
    killed, living = (tmp_path / f"folder.{digit * 32}.tmp" for digit in "01")
    other = tmp_path / f"other.{'0' * 32}.tmp"
    for path in (killed, living, other):
        (path / "below").mkdir(parents=True)
    with (
        folders._locking(f"{living}{folders.LOCK}"),
        folders.replacing(f"{tmp_path}/folder/") as temporary,
    ):
        write_text(temporary)
        names = {path.name for path in tmp_path.iterdir() if path.is_dir()}
        assert names == {living.name, other.name, os.path.basename(temporary)}
    assert sorted(os.listdir(tmp_path)) == ["folder", living.name, other.name]
    assert os.listdir(tmp_path / "folder") == ["text"]


def test_a_folder_that_fails_leaves_no_parents(tmp_path):
    with pytest.raises(KeyboardInterrupt), folders.replacing(f"{tmp_path}/new/folder"):
        raise KeyboardInterrupt
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.ENOSYS, errno.EINVAL])
def test_file_systems_and_stores_without_locks(tmp_path, monkeypatch, number):
    def refuse(*_):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with folders.locking(str(tmp_path)), folders.locking("gs://bucket/run"):
        write_text(tmp_path)
    left = tmp_path / f"folder.{'0' * 32}.tmp"
    left.mkdir()
    with folders.replacing(str(tmp_path / "folder")):
        pass
    assert sorted(os.listdir(tmp_path)) == ["folder", left.name, "text"]
