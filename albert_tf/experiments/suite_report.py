"""Writes the report of a suite: one HTML file, the same in Markdown, and pictures."""

import html
import os
from collections.abc import Mapping, Sequence
from typing import Any

from albert_tf import files
from albert_tf.errors import UserError
from albert_tf.experiments import tables
from albert_tf.experiments.runner import Runner
from albert_tf.experiments.suite import Suite
from albert_tf.experiments.tables import Numbers, Table
from albert_tf.tasks import report_page


def write(runner: Runner, prefix: str, suite_path: str) -> None:
    """Writes `prefix`.html, .md and a .svg for each picture, and says where.

    `suite_path` is for the command that is shown.
    """
    suite, numbers = runner.suite, tables.collect(runner)
    if not numbers:
        raise UserError(f"{suite.name} has no results yet: name --data_dir to run it.")
    notes = _make_notes(runner, numbers, suite_path)
    pictures = _draw(suite, numbers)
    shown = [("Means", tables.make_means(suite, numbers))]
    if len(suite.variants) > 1:
        shown.append(("Differences", tables.make_differences(suite, numbers)))
    for name, picture in pictures.items():
        files.write_bytes(f"{prefix}-{name}.svg", picture.encode())
    files.write_bytes(f"{prefix}.html", _make_html(suite, shown, notes, pictures))
    base = os.path.basename(prefix)
    content = [f"# {suite.title}", suite.question]
    content += [f"## {title}\n\n{_make_markdown(table)}" for title, table in shown]
    content += [f"![{name}]({base}-{name}.svg)" for name in pictures] + notes
    files.write_bytes(f"{prefix}.md", ("\n\n".join(filter(None, content)) + "\n").encode())
    print(_make_markdown(shown[0][1]))
    print(f"the report: {prefix}.html, {prefix}.md")


def _make_notes(runner: Runner, numbers: Numbers, suite_path: str) -> list[str]:
    """Returns paragraphs that say how to read the table, and how it was made."""
    suite = runner.suite
    notes = [
        "A cell has the mean, half of its 95 % interval (Student's t), and the number of seeds. "
        "So have differences (Welch's t; paired by seed if both go on from the same run); one "
        "whose interval holds 0 is not clear."
    ]
    if suite.held_out:
        names = ", ".join(suite.held_out)
        notes.append(f"A column begins with the name of the held-out records: {names}.")
    for task in tables.list_at_chance(suite, numbers):
        notes.append(
            f"{task}: with these seeds no variant is clearly above {suite.tasks[task].chance}, the "
            "score of one answer for all."
        )
    known = [
        stage for variant, seed in suite.list_runs() for stage in runner.find_results(variant, seed)
    ]
    hours = sum(stage["cpu_seconds"] for stage in known) / 3600
    machines = "; ".join(sorted({stage["machine"] for stage in known}))
    ends = sorted(stage["ended"] for stage in known)
    count = sum(map(len, numbers.values()))
    notes.append(
        f"{count} of {len(suite.list_runs())} runs, {hours:.1f} CPU hours, on {machines}, "
        f"{ends[0]} to {ends[-1]}. The command:"
    )
    command = f"bin/run_experiments --suite={suite_path} --data_dir=data --output_dir=work"
    return [*notes, f"`{command}`"]


def _draw(suite: Suite, numbers: Numbers) -> dict[str, str]:
    """Returns {name: drawing}."""
    pictures = {}
    for name in suite.curves:
        curves: Mapping[str, report_page.Points]
        curves = {variant: tables.find_curve(name, runs) for variant, runs in numbers.items()}
        pictures[name] = report_page.draw_curves(tables.name_column(name), "update", curves)
    units = {"l2": "L2 distance of input and output", "angle": "angle, degrees"}
    for name, title in units.items() if suite.layer_distances else ():
        curves = {variant: _find_layers(name, runs) for variant, runs in numbers.items()}
        pictures[f"layers_{name}"] = report_page.draw_curves(title, "layer", curves)
    return pictures


def _find_layers(name: str, runs: Mapping[int, Mapping[str, Any]]) -> list[tuple[int, float]]:
    found = [run[name] for run in runs.values() if name in run]
    return [(layer, sum(x) / len(x)) for layer, x in enumerate(zip(*found, strict=True), 1)]


def _make_markdown(table: Table) -> str:
    head, *rows = [[cell.replace("|", "\\|") for cell in row] for row in table]
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _make_html(
    suite: Suite, shown: list[tuple[str, Table]], notes: list[str], pictures: Mapping[str, str]
) -> bytes:
    parts = [f"<p>{html.escape(suite.question)}</p>"]
    for title, table in shown:
        parts += [f"<h2>{title}</h2>", report_page.make_table(table, choose_class=_choose_class)]
    parts.append(report_page.make_columns(pictures.values()))
    for note in notes:
        is_code = note.startswith("`")
        text = html.escape(note.strip("`"))
        parts.append(f"<p>{f'<code>{text}</code>' if is_code else text}</p>")
    return report_page.make_page(suite.title, parts)


def _choose_class(row: Sequence[str]) -> str:
    return "paper" if row[0].startswith("paper: ") else ""
