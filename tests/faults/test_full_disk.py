"""A full disk is one line, and leaves nothing half-written: on a small file system of our own."""

import contextlib
import subprocess

import pytest
import tiny_records
import tiny_run
import tiny_workers

vocabulary_dir = tiny_records.vocabulary_dir


@contextlib.contextmanager
def small_disk(folder, kilobytes):
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("no right to mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def assert_one_line(said):
    lines = [line for line in said.splitlines() if "No space left on device" in line]
    assert len(lines) == 1
    assert lines[0].endswith("Free some space and run it again.")
    assert "Traceback" not in said


@pytest.mark.full
@pytest.mark.usefixtures("eagerly")
def test_a_checkpoint_that_does_not_fit(data, tmp_path):
    config = tiny_run.settings()
    with small_disk(tmp_path / "disk", 4000) as disk:
        filler, run = disk / "filler", disk / "run"
        fill = f"os.system('head -c 9000000 /dev/zero > {filler} 2>&-')"
        child = tiny_workers.start_run(data, run, config, at_step=6, do=fill)
        assert_one_line(tiny_workers.finish(child, 1))
        assert [(run / f"model.ckpt-{x}.index").exists() for x in (4, 8)] == [True, False]
        filler.unlink()
        tiny_run.run(data, run, config)
        assert (run / "model.ckpt-12.index").exists()


@pytest.mark.full
def test_records_that_do_not_fit(tmp_path, vocabulary_dir, run_program):
    program = tiny_records.TESTS.parent / "bin" / "create_pretraining_data"
    with small_disk(tmp_path / "disk", 600) as disk:
        flags = [f"--input={tiny_records.CORPUS}", f"--vocabulary={vocabulary_dir}"]
        flags += [f"--output_dir={disk}/out", "--max_seq_length=64", "--dupe_factor=90"]
        assert_one_line(run_program(program, *flags, "--num_processes=1"))
        left = [path.name for path in (disk / "out").iterdir()]
        assert not [name for name in left if name == "manifest.json" or name.endswith(".tmp")]
