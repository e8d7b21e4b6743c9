"""A report in a browser: no errors, no network, nothing too wide."""

import json
import os
import re
import shutil
import subprocess

import pytest
from reports import Reader, written

from rkhs_control.reporting import Gallery, Picture, Section

MEASURE = """<script>
addEventListener("load", () => {
  const images = [...document.images].map(image => [image.complete && image.naturalWidth, image.clientWidth]);
  const page = document.documentElement;
  const rows = [...document.querySelectorAll("tbody th")].map(head => head.clientWidth);
  const sizes = {images: images, rows: rows, room: page.clientWidth, content: page.scrollWidth};
  parent.postMessage(JSON.stringify(sizes), "*");
});
</script>"""
FRAME = """<!DOCTYPE html><body>
<script>addEventListener("message", event => document.body.append("measured " + event.data));</script>
<iframe style="border:0;width:WIDTHpx;height:2000px" src="inner.html"></iframe>
</body>"""


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    """Opens a file: the page in the end, what it says on the console, what it asks the network for."""
    names = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
    program = next((found for name in names if (found := shutil.which(name))), None)
    if program is None:
        pytest.skip(f"no browser: none of {', '.join(names)} is installed")
    profile = tmp_path_factory.mktemp("profile")

    def show(file, width=1200):
        log = profile / "net.json"
        command = [
            program,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-background-networking",
            f"--user-data-dir={profile / 'data'}",
            "--enable-logging=stderr",
            "--log-level=0",
            f"--log-net-log={log}",
            f"--window-size={width},900",
            "--virtual-time-budget=5000",
            "--dump-dom",
            file.as_uri(),
        ]
        environment = {**os.environ, "HOME": str(profile)}
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True, env=environment)
        console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
        events = [event.get("params", {}) for event in json.loads(log.read_text())["events"]]
        by_pages = [e["url"] for e in events if e.get("initiator", "not an origin") != "not an origin"]
        return done.stdout, console, [url for url in by_pages if not url.startswith(("file:", "data:"))]

    return show


def test_a_browser_shows_it_without_errors_and_without_the_network(study, browser):
    dom, console, requests = browser(study / "report.html")
    assert console == []
    assert requests == []
    text = Reader(dom).text
    assert "CERTIFIED" in text
    assert "Data cannot confirm these bounds" in text


def test_an_explorer_beside_it_says_the_same(study, browser):
    assert {"href": "explorer.html"} in Reader((study / "report.html").read_text(encoding="utf-8")).all("a")
    dom, console, requests = browser(study / "explorer.html")
    assert console == []
    assert requests == []
    said = re.search(r'<p id="verdict">(.*?)</p><p id="finding">(.*?)</p>', dom).groups()
    summary = json.loads((study / "summary.json").read_text())
    assert summary["plans"][0]["methods"]["optimal"]["explanation"].startswith(": ".join(said))


def test_a_browser_notices_what_a_report_must_not_do(browser, study, tmp_path):
    """So that the test above can fail; and a report forbids it, whatever got into it."""
    stranger = '<img src="http://127.0.0.1:9/x.png"><script>console.log("here")</script>'
    (tmp_path / "page.html").write_text(f"<body>{stranger}</body>")
    _, console, requests = browser(tmp_path / "page.html")
    assert len(console) == 1
    assert requests == ["http://127.0.0.1:9/x.png"]
    html = (study / "report.html").read_text()
    (tmp_path / "page.html").write_text(html.replace("<main>", f"<main>{stranger}"))
    _, console, requests = browser(tmp_path / "page.html")
    assert requests == []
    assert all("Content Security Policy" in line for line in console)


def measured_in(browser, html, folder, width):
    """A report in a frame as wide as a phone or a desk: browser windows are not as narrow as the first."""
    html = re.sub("<meta http-equiv.*>", "", html)  # which forbids the script
    (folder / "inner.html").write_text(html.replace("</body>", MEASURE + "</body>"))
    (folder / "outer.html").write_text(FRAME.replace("WIDTH", str(width)))
    dom, console, _ = browser(folder / "outer.html", 1400)
    assert console == []
    return json.loads(re.search(r"measured (\{.*\})", dom)[1])


@pytest.mark.parametrize("width", [390, 1200])
def test_long_names_and_wide_pictures_leave_room_for_the_rest(certificates, browser, tmp_path, width):
    from matplotlib.figure import Figure

    wide = Section("Wide", [Gallery([Picture(Figure(figsize=(12, 3)), "Four panels.")])])
    html = written(tmp_path, {"n" * 160: certificates["kept"]}, sections=[wide])
    measured = measured_in(browser, html, tmp_path, width)
    assert max(measured["rows"]) < 400
    assert measured["content"] <= measured["room"]
    assert measured["images"][-1][1] > 700  # to be scrolled rather than shrunk


@pytest.mark.parametrize("width", [390, 1200])
def test_pictures_have_a_size_and_the_page_does_not_scroll_sideways(study, browser, tmp_path, width):
    measured = measured_in(browser, (study / "report.html").read_text(), tmp_path, width)
    assert width - 30 < measured["room"] <= width
    assert measured["content"] <= measured["room"]
    assert len(measured["images"]) == 7
    for natural, shown in measured["images"]:
        assert natural > 0
        assert 200 < shown < width
