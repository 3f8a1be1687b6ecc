"""Pages of reports: texts stay texts, and curves are drawn whatever their numbers."""

import math
import re

from albert_tf.tasks import report_page

HOSTILE = "<script>alert('x')</script> & \"quoted\" \ud800"


def test_texts_are_escaped_everywhere():
    parts = [
        f"<p>{report_page.escape(HOSTILE)}</p>",
        report_page.make_table([[HOSTILE, "b"], [HOSTILE, HOSTILE]]),
        report_page.draw_curves(HOSTILE, HOSTILE, {HOSTILE: [(1, 2.0)]}),
    ]
    page = report_page.make_page(HOSTILE, parts).decode()
    assert "<script" not in page
    escaped = "&lt;script&gt;alert(&#x27;x&#x27;)&lt;/script&gt; &amp; &quot;quoted&quot; ?"
    assert page.count(escaped) == 11


def test_rows_have_a_class_and_cells_a_shade():
    table = report_page.make_table(
        [["", "n"], ["a", "1"], ["b", "2"]],
        choose_class=lambda row: "own" if row[0] == "b" else "",
        shades={(0, 1): 0.5},
    )
    assert '<tr><td>a</td><td class=shaded style="--share:0.50">1</td></tr>' in table
    assert "<tr class=own><td>b</td><td>2</td></tr>" in table


def read_points(drawing):
    lines = re.findall(r'polyline points="([^"]*)"', drawing)
    return [[tuple(map(float, p.split(","))) for p in line.split()] for line in lines]


def test_a_curve_runs_from_corner_to_corner():
    drawing = report_page.draw_curves("loss", "update", {"loss": [(10, 3.0), (20, 2.0), (30, 1.0)]})
    assert read_points(drawing) == [[(52.0, 30.0), (198.5, 100.0), (345.0, 170.0)]]
    marks = re.findall(r'text-anchor="end">([^<]*)<', drawing)
    assert marks == ["1", "1.5", "2", "2.5", "3", "update"]


def test_a_band_over_seeds():
    points = [(1, 2.0, 1.0, 3.0), (2, 2.0, 2.0, 2.0)]
    drawing = report_page.draw_curves("loss", "update", {"a": points})
    assert 'polygon points="52.0,30.0 345.0,100.0 345.0,100.0 52.0,170.0"' in drawing


def test_marks_may_overlap_and_the_text_around_them_is_kept():
    text = "w" * 50 + "<xyz" + "c" * 50
    marked = report_page.mark(text, [(50, 52, "label"), (51, 53, "predicted")], 12)
    assert marked == (
        '<bdi>…wwww<mark class="label">&lt;</mark><mark class="label predicted">x</mark>'
        '<mark class="predicted">y</mark>zcccc…</bdi>'
    )


def test_curves_of_odd_numbers():
    assert report_page.draw_curves("loss", "update", {}) == ""
    assert report_page.draw_curves("loss", "update", {"loss": [(1, math.nan)]}) == ""
    curves = {"a": [(1, 1e30), (2, math.inf)], "b": [(1, 1e30)], "c": []}
    [a, b] = read_points(report_page.draw_curves("loss", "update", curves))
    assert len(a) == len(b) == 1
    [long] = read_points(
        report_page.draw_curves("loss", "update", {"x": [(k, 0.0) for k in range(100_001)]})
    )
    assert len(long) <= 401
    assert long[-1][0] == 345.0
