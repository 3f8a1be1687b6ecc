"""bin/data extract_passages: the paper's intrinsic dev set."""

import json
from pathlib import Path

PROGRAM = Path(__file__).parents[2] / "bin" / "data extract_passages"


def test_passages_are_documents_once(run_program, tmp_path):
    squad, output = tmp_path / "dev.json", tmp_path / "passages.jsonl"
    questions = [
        {"id": name, "question": "which?", "answers": [{"text": "first", "answer_start": 2}]}
        for name in "ab"
    ]
    paragraphs = [{"context": "A first text, ö.", "qas": questions}]
    squad.write_text(json.dumps({"data": [{"title": "t", "paragraphs": paragraphs}]}))
    for level in ("high", "middle"):
        folder = tmp_path / "race" / "RACE" / "dev" / level
        folder.mkdir(parents=True)
        passage = {
            "article": f"A text of {level} schools.\nIts end.",
            "questions": ["is it _ ?"],
            "options": [["a", "b", "c", "d"]],
            "answers": ["A"],
        }
        (folder / "1.txt").write_text(json.dumps(passage))
    flags = [f"--squad_file={squad}", f"--race_dir={tmp_path}/race", f"--output={output}"]
    assert not run_program(PROGRAM, *flags)
    texts = [json.loads(line)["text"] for line in output.read_text().splitlines()]
    assert texts[0] == "A first text, ö."
    assert sorted(texts[1:]) == [
        "A text of high schools.\nIts end.",
        "A text of middle schools.\nIts end.",
    ]
    assert not run_program(PROGRAM, f"--squad_file={squad}", f"--output={output}")
    assert len(output.read_text().splitlines()) == 1


def test_mistakes_are_named(run_program, tmp_path):
    output = f"--output={tmp_path}/out.jsonl"
    assert "name --squad_file, --race_dir or both" in run_program(PROGRAM, output)
    assert "RACE/dev/middle" in run_program(PROGRAM, f"--race_dir={tmp_path}", output)
    itself = [f"--{name}={tmp_path}/dev.json" for name in ("squad_file", "output")]
    (tmp_path / "dev.json").write_text("")
    assert "is among the inputs. Name another file." in run_program(PROGRAM, *itself)
    message = run_program(PROGRAM, f"--squad_file={tmp_path}/dev.json", output)
    assert "is not JSON" in message
    assert not (tmp_path / "out.jsonl").exists()
