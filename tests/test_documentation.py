"""The documentation as it is built: no warning, every block executed, nothing fetched, every public name explained."""

import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path

import rkhs_control

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted((ROOT / "docs").glob("*.md"))
NOTEBOOKS = sorted((ROOT / "docs" / "notebooks").glob("*.md"))
CELLS = {"python", "{code-cell} ipython3"}
NOT_CODE = {"toml", "json", "text", "console", "{toctree}"}
COUNTED = r"(?:one|two|three|box(?:es)?|bounds?|intervals?|plans?|rows?|corners?|witness(?:es)?)"
AWKWARD = {
    rf"{COUNTED} an? (?:state|step|plan|row|run|query|sample|cell|second|loop)": "per state, per step, ...",
    r"regions? of trust": "trust region",
    r"rounded (?:down|up)wards": "rounded down, rounded up",
    r"(?:semi)?variogrammes?": "semivariogram",
    r"working points?": "operating point",
    r"whoever": "anyone who, if you",
    r"nobody (?:is|has) told": "there is no message",
    r"one's own": "your own",
    r"lack(?:s|ing)? least": "comes closest",
    r"give or take": "plus or minus",
    r"what comes back": "what it returns",
    r"at more leisure": "in more detail",
    r"without a word": "silently",
    r"grow(?:s|ing)? without end": "grow without limit",
    r"is no matter of": "does not depend on",
    r"mend(?:s|ed|ing)?": "repair, correct",
}
"""Phrases that are grammatical but that no native speaker would write, and what to write instead."""


def blocks(page):
    """What the fenced blocks of a page are said to be."""
    fences = re.findall(r"^ *```(.*)$", page.read_text(), flags=re.MULTILINE)
    assert len(fences) % 2 == 0, f"{page.name} has a block without an end"
    return fences[::2]


def prose(page):
    """The text of a page on one line, without code and formulas."""
    text = re.sub(r"^ *```.*?^ *```$|^ {4}.*?$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    return " ".join(re.sub(r"`[^`]*`|\$[^$]*\$", "...", text).split())


def remote_resources(html):
    """Scripts, styles and pictures that a reader's browser would fetch from elsewhere."""
    tags = re.findall(r"<(?:script|img|iframe|link)\b[^>]*>", html)
    return [tag for tag in tags if re.search(r"""(?:src|href)=["'](?:https?:)?//""", tag)]


def test_the_documentation_builds_without_a_warning(tmp_path):
    """One build, and what must be true of it; each Python block is run by it and raises what it raises."""
    html = tmp_path / "html"
    command = [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "-j", "2", str(ROOT / "docs"), str(html)]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr

    for page in [*PAGES, *NOTEBOOKS]:
        built = (html / page.relative_to(ROOT / "docs").with_suffix(".html")).read_text()
        executed = built.count('<div class="cell_input docutils container">')
        assert executed == sum(block in CELLS for block in blocks(page)), (
            f"{page.name}: {executed} blocks were executed"
        )
        assert not remote_resources(built), page.name
        formulas = re.findall(r"<math.*?</math>", built, flags=re.DOTALL)
        assert not [formula for formula in formulas if "\\" in formula], f"{page.name} has a formula that was not read"
    for style in html.rglob("*.css"):
        assert not re.search(r"""(?:url\(|@import)\s*["']?(?:https?:)?//""", style.read_text()), style.name

    for page in NOTEBOOKS:
        (download,) = html.glob(f"_downloads/*/{page.stem}.ipynb")
        assert Path(download).parent.name in (html / "notebooks" / f"{page.stem}.html").read_text()
        cells = [cell for cell in json.loads(download.read_text())["cells"] if cell["cell_type"] == "code"]
        assert all(cell["execution_count"] for cell in cells), page.name
        for cell in cells:
            streams = [output["name"] for output in cell["outputs"] if output["output_type"] == "stream"]
            assert len(streams) == len(set(streams)), f"{page.name} repeats what it printed"

    reference = (html / "api.html").read_text()
    missing = [n for n in rkhs_control.__all__ if n != "__version__" and f'id="rkhs_control.{n}"' not in reference]
    assert not missing, "name their modules in docs/api.md"


def test_no_python_hides_in_a_block_that_is_not_executed():
    for page in PAGES:
        assert set(blocks(page)) <= {"python", *NOT_CODE}, page.name
    for page in NOTEBOOKS:
        assert set(blocks(page)) == {"{code-cell} ipython3"}, page.name


def test_documentation_reads_as_plain_english():
    for page in [ROOT / "README.md", *PAGES]:
        text = prose(page)
        for awkward, better in AWKWARD.items():
            found = re.search(rf"\b{awkward}\b", text, flags=re.IGNORECASE)
            assert not found, f"{page.name} says {found[0]!r}; plain English: {better}"


def test_every_page_is_named_on_the_first_one():
    index = (ROOT / "docs" / "index.md").read_text()
    for page in [*PAGES, *NOTEBOOKS]:
        link = f"]({page.relative_to(ROOT / 'docs').as_posix()})"
        assert page.stem == "index" or link in index, f"{page.name} is not in the map of index.md"


def test_every_notebook_can_be_downloaded_and_has_its_picture_in_the_gallery():
    index = (ROOT / "docs" / "index.md").read_text()
    assert len(NOTEBOOKS) == 4
    for page in NOTEBOOKS:
        text = page.read_text()
        assert f"{{nb-download}}`{page.stem}.ipynb`" in text
        assert text.count(":tags: [thumbnail]") == 1
        assert f"](_static/thumbnails/{page.stem}.svg)](notebooks/{page.name})" in index
    pictures = sorted((ROOT / "docs" / "_static" / "thumbnails").iterdir())
    assert {file.name for file in pictures} == set(re.findall(r"_static/thumbnails/([^)]+)\)", index))
    assert all("<path" in file.read_text() for file in pictures)


def tree_of_the_documentation():
    """docs/tree.py, which writes the generated parts of the page on architecture."""
    spec = importlib.util.spec_from_file_location("tree", ROOT / "docs" / "tree.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_on_architecture_is_true():
    page = (ROOT / "docs" / "architecture.md").read_text()
    assert tree_of_the_documentation().filled(page) == page, "run `python docs/tree.py`"
    for path in re.findall(r"`([a-z_]+/(?:[a-z_]+\.py)?)`", page):
        assert (ROOT / "rkhs_control" / path).exists() or (ROOT / path).exists(), path


def test_every_room_is_in_the_picture():
    picture = (ROOT / "docs" / "_static" / "architecture.svg").read_text()
    assert sorted(re.findall(r'class="room"[^>]*>(\w+)<', picture)) == sorted(rkhs_control.ROOMS)


def test_every_file_says_what_it_is_for_in_one_line():
    tree = tree_of_the_documentation()
    for room in rkhs_control.ROOMS:
        path = tree.path_of(room)
        for file in [path] if path.is_file() else path.rglob("*.py"):
            assert tree.first_line(file).endswith((".", ":", "?", "!")), file.relative_to(ROOT)


def test_messages_that_are_explained_are_in_the_code():
    code = "\n".join(
        file.read_text() for folder in ("rkhs_control", "scenarios") for file in (ROOT / folder).rglob("*.py")
    )
    code = re.sub(r'"\s*\n\s*f?"', "", code)  # strings that go on in the next line
    page = (ROOT / "docs" / "troubleshooting.md").read_text()
    quoted = re.findall(r"^\| `([^`]* [^`]*)` \|", page, flags=re.MULTILINE)
    quoted += re.findall(r'^## "(.*)"$', page, flags=re.MULTILINE)
    assert len(quoted) > 10
    for message in quoted:
        for part in filter(None, (part.strip() for part in message.split("..."))):
            assert part in code, f"no message says {part!r}"


def test_commands_that_are_named_exist():
    from typer.main import get_command

    from rkhs_control.cli.app import app

    known = set(get_command(app).commands)
    for page in [ROOT / "README.md", *PAGES, *NOTEBOOKS]:
        named = set(re.findall(r"rkhs-control ([a-z][a-z-]*)", page.read_text()))
        assert named <= known, f"{page.name} names {named - known}"
