"""`rkhs-control explore`: opens what is there, and says what to do where it is not."""

import webbrowser

import pytest


@pytest.fixture
def opened(monkeypatch):
    addresses = []
    monkeypatch.setattr(webbrowser, "open", lambda address: addresses.append(address) or True)
    return addresses


def test_it_opens_the_file_in_the_browser(run, opened, tmp_path):
    (tmp_path / "results").mkdir()
    file = tmp_path / "results" / "explorer.html"
    file.write_text("<p>")
    code, text = run("explore", "results")
    assert (code, text.split()) == (0, ["results/explorer.html"])
    assert opened == [file.as_uri()]
    code, text = run("explore", "results", "--no-open")
    assert (code, text.split()) == (0, ["results/explorer.html"])
    assert len(opened) == 1


def test_without_a_browser_it_says_where_the_file_is(run, monkeypatch, tmp_path):
    monkeypatch.setattr(webbrowser, "open", lambda address: False)
    (tmp_path / "explorer.html").write_text("<p>")
    code, text = run("explore", ".")
    assert code == 0
    assert "explorer.html" in text
    assert "open this file" in text


@pytest.mark.parametrize(
    ("files", "message"),
    [
        (["certificates/plan_1.json", "report.html"], "Run the same scenario again"),
        (["region.json"], "Run the same scenario again"),
        (["report.html"], "nothing to explore"),
        (["other.txt"], "has no results"),
    ],
)
def test_where_there_is_none_it_says_what_to_do(run, opened, tmp_path, files, message):
    for name in files:
        (tmp_path / "results" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "results" / name).write_text("{}")
    code, text = run("explore", "results")
    assert code == 1
    assert message in text
    assert not opened


def test_a_folder_that_is_not_there_is_named(run, opened):
    code, text = run("explore", "nowhere")
    assert code == 1
    assert "nowhere is not a folder" in text
