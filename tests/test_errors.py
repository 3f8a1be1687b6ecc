import pytest
import tensorflow as tf

from albert_tf import errors

IN_A_GRAPH = """Graph execution error:

Detected at node disconnect_tpu_host/_1 defined at (most recent call last):
<stack traces unavailable>
RET_CHECK failure (tpu_node_interfaces.cc:432) *platform\x20
\t [[{{node disconnect_tpu_host/_1}}]] [Op:__inference__tpu_init_fn_11]"""


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("one thing\nand another"), "one thing"),
        (tf.errors.InternalError(None, None, IN_A_GRAPH), "RET_CHECK failure (tpu_node_inter"),
        (KeyError(), "KeyError"),
    ],
)
def test_a_reason_is_one_line(error, said):
    reason = errors.reason(error)
    assert reason.startswith(said)
    assert "\n" not in reason


def test_an_output_is_refused_before_the_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "a.json").touch()
    (tmp_path / "link.json").symlink_to("a.json")
    for path in ("new.json", "a.json", f"{tmp_path}/new.json", "gs://bucket/new.json"):
        errors.refuse_output(path, "--x", ["missing.json", "link.json"] * (path != "a.json"))
    for path, message in [
        (".", r"^--x: '\.' is a folder\. Name a file\.$"),
        ("new/a.json", r"^--x: there is no folder 'new'\. Make it first\.$"),
        ("link.json", r"^--x: 'link\.json' is among the inputs\. Name another file\.$"),
    ]:
        with pytest.raises(errors.UserError, match=message):
            errors.refuse_output(path, "--x", ["missing.json", "a.json"])


def test_a_folder_is_refused_before_the_work(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    for path in ("", ".", "new", "new/a/", f"{tmp_path}/new", "gs://bucket/new"):
        errors.refuse_output_folder(path, "--x")
    for path, message in [
        ("file", r"^--x: 'file' is not a folder\. Name another\.$"),
        ("file/a", r"^--x: 'file' is not a folder\. Name another\.$"),
        (
            "/proc/a",
            r"^--x: '/proc/a' cannot be written \(No such file .*\)\. Name another place\.$",
        ),
    ]:
        with pytest.raises(errors.UserError, match=message):
            errors.refuse_output_folder(path, "--x")
    with pytest.raises(errors.UserError, match=r"^--x: '/proc/a' cannot be written"):
        errors.refuse_output("/proc/a", "--x")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_programs_are_called_as_the_user_started_this_one(monkeypatch):
    message = "Run bin/predict, or `bin/export`: not ./bin/predict, /usr/bin/env, --output=bin/a."
    assert errors.name_programs(message) == message
    monkeypatch.setattr("sys.argv", ["/site-packages/albert_tf/bin/predict"])
    start = "Run albert-tf predict, or `albert-tf export`: not ./bin/predict"
    assert errors.name_programs(message).startswith(start)
    assert errors.name_programs(message)[len(start) :] == ", /usr/bin/env, --output=bin/a."
