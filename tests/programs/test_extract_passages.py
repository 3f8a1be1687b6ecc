"""bin/data extract_passages: the paper's intrinsic dev set."""

import json

from input_files import write_race, write_squad
from repository import ROOT

PROGRAM = ROOT / "bin/data extract_passages"


def test_passages_are_documents_once(run_program, tmp_path):
    squad = write_squad(tmp_path / "dev.json", "A first text, ö.", "first", "first")
    output = tmp_path / "passages.jsonl"
    article, levels = "A text of {} schools.\nIts end.", ["high", "middle"]
    write_race(tmp_path / "race/RACE", levels=levels, article=article)
    flags = [f"--squad_file={squad}", f"--race_dir={tmp_path}/race", f"--output={output}"]
    assert not run_program(PROGRAM, *flags)
    texts = [json.loads(line)["text"] for line in output.read_text().splitlines()]
    assert texts[0] == "A first text, ö."
    assert sorted(texts[1:]) == [article.format(level) for level in levels]
    assert not run_program(PROGRAM, f"--squad_file={squad}", f"--output={output}")
    assert len(output.read_text().splitlines()) == 1


def test_mistakes_are_named(run_program, tmp_path):
    output = f"--output={tmp_path}/out.jsonl"
    assert "pass --squad_file, --race_dir or both" in run_program(PROGRAM, output)
    assert "RACE/dev/middle" in run_program(PROGRAM, f"--race_dir={tmp_path}", output)
    itself = [f"--{name}={tmp_path}/dev.json" for name in ("squad_file", "output")]
    (tmp_path / "dev.json").write_text("")
    assert "is one of the inputs. Use another file." in run_program(PROGRAM, *itself)
    assert "is not JSON" in run_program(PROGRAM, f"--squad_file={tmp_path}/dev.json", output)
    assert not (tmp_path / "out.jsonl").exists()
