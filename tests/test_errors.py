import pytest
import tensorflow as tf

from albert_tf import errors, file_checks

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


@pytest.mark.parametrize(
    ("refuse", "path", "message"),
    [
        (file_checks.refuse_output, ".", r"'\.' is a folder\. Name a file\."),
        (file_checks.refuse_output, "new/a", r"there is no folder 'new'\. Make it first\."),
        (file_checks.refuse_output, "link", r"'link' is among the inputs\. Name another file\."),
        (file_checks.refuse_output, "/proc/a", "'/proc/a' cannot be written"),
        (file_checks.refuse_output_folder, "file", r"'file' is not a folder\. Name another\."),
        (file_checks.refuse_output_folder, "file/a", r"'file' is not a folder\. Name another\."),
        (
            file_checks.refuse_output_folder,
            "/proc/a",
            r"'/proc/a' cannot be written \(No such file .*",
        ),
    ],
)
def test_an_output_is_refused_before_the_work(tmp_path, monkeypatch, refuse, path, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to("file")
    for good in ("file", f"{tmp_path}/new", "gs://bucket/new"):
        file_checks.refuse_output(good, "--x", ["missing", "link"] * (good != "file"))
    for good in ("", ".", "new/a/", f"{tmp_path}/new", "gs://bucket/new"):
        file_checks.refuse_output_folder(good, "--x")
    arguments = (["missing", "file"],) if refuse is file_checks.refuse_output else ()
    with pytest.raises(errors.UserError, match=f"^--x: {message}"):
        refuse(path, "--x", *arguments)
    assert {path.name for path in tmp_path.iterdir()} == {"file", "link"}


def test_programs_are_called_as_the_user_started_this_one(monkeypatch):
    message = "Run bin/predict, or `bin/export`: not ./bin/predict, /usr/bin/env, --output=bin/a."
    assert errors.name_programs(message) == message
    monkeypatch.setattr("sys.argv", ["/site-packages/albert_tf/bin/predict"])
    start = "Run albert-tf predict, or `albert-tf export`: not ./bin/predict"
    assert errors.name_programs(message).startswith(start)
    assert errors.name_programs(message)[len(start) :] == ", /usr/bin/env, --output=bin/a."
