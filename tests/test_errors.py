"""What an error of the machine says, and what is refused before any work."""

import errno
import re

import pytest
import tensorflow as tf

from albert_tf import errors, file_checks
from albert_tf.errors import LostWorkerError, UserError

IN_A_GRAPH = "Graph execution error:\n\nDetected at node while/X\n<stack traces unavailable>\n"
TPU = "RET_CHECK failure (tpu.cc:432) *platform\x20\n\t [[{{node x/_1}}]] [Op:__inference_fn_11]"
FULL, MEMORY = "No space left on device", "Out of memory: "
LOST = "a machine was lost or does not answer. Run the same command again; a training run resumes."


def error(kind, message):
    return getattr(tf.errors, f"{kind}Error")(None, None, message)


ENDS = [
    (UserError("seed: must be 3.\nNo"), 1, r"seed: must be 3\.\\nNo"),
    (LostWorkerError("worker 2 has stopped."), 75, "worker 2 has stopped."),
    (KeyboardInterrupt(), 130, "interrupted"),
    (OSError(errno.ENOSPC, FULL, "/x"), 1, rf".*{FULL}: '/x'\. Free some space"),
    (OSError(errno.EACCES, "Permission denied", "/x"), 1, r".*Permission denied: '/x'\. Use a fol"),
    (error("ResourceExhausted", f"/x; {FULL}\nmore"), 1, rf"/x; {FULL}\. Free some space"),
    (error("Unavailable", FULL), 1, rf"{FULL}\. Free some space"),
    (
        error("Unknown", f"{IN_A_GRAPH}/x; Input/output error\nmore"),
        1,
        r"/x; Input/output error\. Ch",
    ),
    (error("ResourceExhausted", f"{IN_A_GRAPH}OOM when allocating\nmore"), 1, f"OOM .*{MEMORY}"),
    (
        ValueError("No fingerprint:\n  /x; Permission denied"),
        1,
        r"/x; Permission denied\. Use a fol",
    ),
    (
        error("FailedPrecondition", "Error executing an HTTP request: no x"),
        1,
        ".*Check the network",
    ),
    (OSError(errno.EFBIG, "File too large"), 1, r".*File too large\. Raise the limit on the size"),
    (error("ResourceExhausted", "/x; Too many open files"), 1, r"/x; Too many open files\. Raise "),
    (MemoryError(), 1, rf"MemoryError\. {MEMORY}"),
    (ImportError("x.so: cannot map: Cannot allocate memory"), 1, f"x.so: .*{MEMORY}"),
    (RuntimeError("can't start new thread"), 1, f"can't start new thread. {MEMORY}"),
    (error("Aborted", "Error executing an HTTP request: libcurl code 28"), 75, f"Error .*{LOST}"),
    *(
        (error(kind, "Socket closed\nmore"), 75, rf"Socket closed \({kind}Error\): {LOST}")
        for kind in ("Unavailable", "Aborted", "Cancelled", "DeadlineExceeded")
    ),
    # Defects of the program: no line.
    (ImportError("libcudnn.so.9: cannot open: No such file or directory"), 1, ""),
    (RuntimeError("Permission denied"), 1, ""),
    (error("ResourceExhausted", "Received message larger than max"), 1, ""),
    (ValueError("ours"), 1, ""),
    (OSError(errno.EIO, "ours"), 1, ""),
    (AssertionError(), 1, ""),
]


@pytest.mark.parametrize(("caught", "status", "expected"), ENDS, ids=lambda x: str(x)[:30])
def test_what_only_the_user_can_mend_is_one_line_with_a_remedy(caught, status, expected):
    actual, line = errors.describe_end(caught)
    assert actual == status
    assert re.match(expected, line) if expected else not line
    assert "\n" not in line


def test_a_reason_is_no_place_in_a_graph():
    assert (
        errors.reason(error("Internal", IN_A_GRAPH + TPU))
        == "RET_CHECK failure (tpu.cc:432) *platform"
    )
    assert errors.reason(KeyError()) == "KeyError"


@pytest.mark.parametrize(
    ("refuse", "path", "message"),
    [
        (file_checks.refuse_output, ".", r"'\.' is a folder\. Pass a file\."),
        (file_checks.refuse_output, "new/a", r"there is no folder 'new'\. Create it first\."),
        (file_checks.refuse_output, "link", r"'link' is one of the inputs\. Use another file\."),
        (file_checks.refuse_output, "/proc/a", "'/proc/a' cannot be written"),
        (file_checks.refuse_output_folder, "file", r"'file' is not a folder\. Use another path\."),
        (
            file_checks.refuse_output_folder,
            "file/a",
            r"'file' is not a folder\. Use another path\.",
        ),
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
