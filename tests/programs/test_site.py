"""The site of docs/: it builds without a warning, needs no other server, and is up to date."""

import dataclasses
import re
import runpy
import subprocess
import sys

import pytest
from repository import ROOT

REFERENCE = runpy.run_path(str(ROOT / "docs" / "write_config_reference.py"))


def test_the_reference_of_configs_is_up_to_date_and_describes_every_field():
    page = (ROOT / "docs" / "config_reference.md").read_text()
    assert page == REFERENCE["make_page"](), "run: python docs/write_config_reference.py"
    for _, cls in REFERENCE["SECTIONS"]:
        names = {field.name for field in dataclasses.fields(cls)}
        described = REFERENCE["describe_fields"](cls)
        if cls.__name__ != "Phase":  # its fields are described where the run has them
            assert names <= described.keys(), cls
    assert "| `num_attention_heads` | int | `12` | N |" in page


def test_every_page_is_in_the_navigation():
    navigation = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    pages = re.findall(r"(\w+\.md)$", navigation, re.MULTILINE)
    assert sorted(pages) == sorted(path.name for path in (ROOT / "docs").rglob("*.md"))


@pytest.mark.full
def test_the_site_has_every_page_and_loads_nothing_from_elsewhere(tmp_path):
    pytest.importorskip("mkdocs", reason="the site needs requirements-docs.txt")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", f"--site-dir={tmp_path}"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for path in (ROOT / "docs").rglob("*.md"):
        assert (tmp_path / path.relative_to(ROOT / "docs").with_suffix(".html")).exists(), path
    for page in tmp_path.rglob("*.html"):
        addresses = re.findall(
            r"<(?:script|img|link)\b[^>]*?(?:src|href)=\"([^\"]*)", page.read_text()
        )
        assert not [x for x in addresses if re.match(r"(\w+:)?//", x)], page
    assert "fill_mask" in (tmp_path / "api.html").read_text()


def test_the_images_install_what_the_documents_say():
    """Nobody has built them: at least their commands are those that are tried elsewhere."""
    image = (ROOT / "Dockerfile").read_text()
    installed = re.findall(r"^RUN (pip install .*)", image, re.MULTILINE)
    page = (ROOT / "docs" / "clusters.md").read_text()
    assert installed[:3] == re.findall(r"^pip install .*", page, re.MULTILINE)
    assert installed[3:] == ["pip install -r requirements.txt", "pip install --no-deps -e ."]


def test_the_citation_has_the_version_of_the_package():
    version = re.search(r'^version = "(.*)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert f"\nversion: {version[1]}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"\n## {version[1]}\n" in (ROOT / "CHANGELOG.md").read_text()
