import errno
import fcntl
import json
import os
import shutil
import subprocess
import sys
import time

import pytest

from albert_tf import files
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
    ("pattern", "remedy"),
    [
        ("z.txt", " It is looked for in '{}'."),
        ("folder.txt/z*", " It is looked for in '{}'."),
        ("/nowhere*.txt", ""),
        ("folder.txt", " It is a folder: name the files in it."),
        ("nowhere/*.txt", " There is no folder 'nowhere': check its name."),
    ],
)
def test_a_pattern_without_files_is_named(folder, pattern, remedy):
    with pytest.raises(UserError) as error:
        files.expand(["a.txt", pattern], "--input")
    remedy = remedy.format(folder)
    assert str(error.value) == f"--input: no file matches {pattern!r}.{remedy}"


def test_no_pattern_at_all():
    with pytest.raises(UserError, match="--input: name at least one file"):
        files.expand([], "--input")


def test_replacing_shows_the_file_only_when_it_is_whole(folder):
    path = str(folder / "a.txt")
    with files.replacing(path) as temporary:
        with open(temporary, "w") as file:
            file.write("new")
        assert os.path.dirname(temporary) == str(folder)
        assert (folder / "a.txt").read_text() == "a.txt"
    assert (folder / "a.txt").read_text() == "new"
    assert not os.path.exists(temporary)


def test_two_at_once_do_not_write_the_same_temporary_file(folder):
    path = str(folder / "a.txt")
    with files.replacing(path) as first, files.replacing(path) as second:
        assert first != second
        for temporary in (first, second):
            with open(temporary, "w") as file:
                file.write("new")
    assert (folder / "a.txt").read_text() == "new"
    assert len(os.listdir(folder)) == 5


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
@pytest.mark.parametrize("starts", [False, True])
def test_replacing_leaves_nothing_on_failure(folder, error, starts):
    before = sorted(os.listdir(folder))
    with pytest.raises(error), files.replacing(str(folder / "a.txt")) as temporary:
        if starts:
            with open(temporary, "w") as file:
                file.write("half")
        raise error
    assert (folder / "a.txt").read_text() == "a.txt"
    assert sorted(os.listdir(folder)) == before


def test_json_is_written_for_readers_and_read_again(tmp_path):
    path, value = tmp_path / "value.json", {"b": [1, 2.5, None], "a": "é 文"}
    files.write_json(str(path), value)
    text = path.read_text(encoding="utf-8")
    assert text == json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    assert "é 文" in text
    assert files.read_json(str(path), "--x") == value


def test_what_cannot_be_read_is_one_sentence(folder):
    with pytest.raises(UserError, match=r"^--x: there is no file 'missing'\.$"):
        files.read_bytes("missing", "--x")
    with pytest.raises(UserError, match=r"^--x: 'folder\.txt' is a folder, not a file\.$"):
        files.read_bytes("folder.txt", "--x")
    with pytest.raises(UserError, match=r"^--x: 'a\.txt' is not JSON: .*$"):
        files.read_json("a.txt", "--x")
    (folder / "twice.json").write_text('{"a": {"b": 1, "c": 2, "b": 1}}')
    with pytest.raises(UserError, match=r"is not JSON: the key 'b' is there twice\.$"):
        files.read_json("twice.json", "--x")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ('{\n"a": "é"}'.encode("latin-1"), ", line 2: this is not UTF-8. Convert the file (iconv"),
        ("{}".encode("utf-16"), " is UTF-16: convert it to UTF-8 (iconv"),
        ("{}".encode("utf-16-be"), ", line 1: there is a NUL byte, which no text has"),
        (b"\x1f\x8b\x08", " is compressed: unpack it"),
    ],
)
def test_what_is_no_text_is_one_sentence(folder, content, message):
    (folder / "x.json").write_bytes(content)
    with pytest.raises(UserError) as caught:
        files.read_json("x.json", "--x")
    assert str(caught.value).startswith(f"--x: 'x.json'{message}")
    assert "\n" not in str(caught.value)


def test_a_byte_order_mark_is_no_content(folder):
    (folder / "x.json").write_text('\ufeff{"a": "\ufeff"}', encoding="utf-8")
    assert files.read_json("x.json", "--x") == {"a": "\ufeff"}
    assert files.read_bytes("x.json", "--x").startswith(b'{"a"')


HOLD = """
import sys, time
from albert_tf import files
with files.locking_folder(sys.argv[1]):
    print("locked", flush=True)
    time.sleep(60)
"""


def test_a_second_process_in_a_folder_is_refused_until_the_first_is_dead(tmp_path):
    place = str(tmp_path / "new" / "folder")
    holder = subprocess.Popen([sys.executable, "-c", HOLD, place], stdout=subprocess.PIPE)
    try:
        assert holder.stdout.readline() == b"locked\n"
        with pytest.raises(UserError) as error, files.locking_folder(place):
            pass
        assert str(error.value) == (
            f"{place} is in use by another process. Wait until it has ended, stop it, or take "
            "another folder."
        )
    finally:
        holder.kill()
        holder.communicate()
    assert os.listdir(place) == [files.LOCK]  # which is not locked any more
    with files.locking_folder(place):
        write_text(place)
    assert os.listdir(place) == ["text"]


REPLACE = """
import sys, time
from albert_tf import files
with files.replacing_folder(sys.argv[1]):
    print("begun", flush=True)
    time.sleep(60)
"""


def test_what_killed_processes_left_of_a_folder_is_removed(tmp_path):
    place = str(tmp_path / "folder")
    command = [sys.executable, "-c", REPLACE, place]
    killed, living = (subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(2))
    try:
        assert killed.stdout.readline() == living.stdout.readline() == b"begun\n"
        other = tmp_path / f"other.{'0' * 32}.tmp"
        other.mkdir()
        killed.kill()
        killed.communicate()
        assert len(os.listdir(tmp_path)) == 3
        with files.replacing_folder(place) as temporary:
            write_text(temporary)
        left = set(os.listdir(tmp_path))
        assert {"folder", other.name} < left
        assert len(left) == 3  # that of the living one is left alone
    finally:
        living.kill()
        living.communicate()


def test_without_locks_leftovers_are_removed_after_a_day(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError("no locks here")

    monkeypatch.setattr(files.fcntl, "flock", refuse)
    names = [f"folder.{number * 32}.tmp" for number in "123"]
    yesterday = time.time() - 25 * 3600
    for name in names:
        (tmp_path / name / "variables").mkdir(parents=True)
        for path in (tmp_path / name / "variables", tmp_path / name):
            os.utime(path, (yesterday, yesterday))
    (tmp_path / names[1] / "variables" / "data").touch()  # it is being written
    os.utime(tmp_path / names[2], None)
    with files.replacing_folder(str(tmp_path / "folder")):
        pass
    assert sorted(os.listdir(tmp_path)) == ["folder", *names[1:]]


def write_text(folder):
    files.write_bytes(os.path.join(folder, "text"), b"text")


def test_a_locked_folder_that_stays_empty_leaves_nothing(tmp_path):
    (tmp_path / "before").mkdir()
    with files.locking_folder(str(tmp_path / "before" / "new" / "folder")):
        pass
    assert os.listdir(tmp_path / "before") == []
    with files.locking_folder(str(tmp_path / "before")):
        pass
    assert os.listdir(tmp_path) == ["before"]


def test_file_systems_and_stores_without_locks(tmp_path, monkeypatch):
    def refuse(*_):
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with files.locking_folder(str(tmp_path)), files.locking_folder("gs://bucket/run"):
        write_text(tmp_path)
    assert os.listdir(tmp_path) == ["text"]


def test_a_temporary_folder_is_removed_and_those_of_killed_processes_too(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept").touch()
    left = tmp_path / f"mine.{'0' * 32}.tmp"
    (left / "models").mkdir(parents=True)
    for link in (left / "models" / "name", tmp_path / f"mine.{'1' * 32}.tmp"):
        link.symlink_to(outside)
    with files.making_temporary_folder("mine") as first:
        assert not left.exists()
        assert [path.name for path in outside.iterdir()] == ["kept"]
        shutil.rmtree(outside)
        (tmp_path / f"mine.{'1' * 32}.tmp").unlink()
        assert [str(path) for path in tmp_path.iterdir()] == [first]
        with files.making_temporary_folder("mine") as second:
            write_text(first)
            assert os.stat(second).st_mode & 0o777 == 0o700
        assert os.listdir(tmp_path) == [os.path.basename(first)]
    assert not os.listdir(tmp_path)
