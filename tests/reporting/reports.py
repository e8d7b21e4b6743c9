"""Reports as readers find them: all tags and the text of an HTML file, and the sections of a page."""

from html.parser import HTMLParser

import rkhs_control as rc

WIDE = rc.Box([0.5, 0.2], [4.0, 3.0])
MARGINS = {
    verdict: {"norm_margin": factor, "noise_margin": factor}
    for verdict, factor in zip(rc.Verdict, (2.0, 0.5, 0.0), strict=True)
}


class Reader(HTMLParser):
    """All tags with their attributes, and the text."""

    def __init__(self, html):
        super().__init__()
        self.tags, self.text, self.open = [], "", []
        self.feed(html)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.open.append(tag)

    def handle_endtag(self, tag):
        while self.open and self.open.pop() != tag:
            pass

    def handle_data(self, data):
        if "style" not in self.open:
            self.text += data

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def written(folder, certificates, **settings):
    rc.write_report(folder / "report.html", certificates, **settings)
    return (folder / "report.html").read_text(encoding="utf-8")


def page_of(**certificates):
    plans = [rc.ReportedPlan(name, {"optimal": c}, {"optimal": MARGINS[c.verdict]}) for name, c in certificates.items()]
    return rc.Report("A report", plans[0].certificate.predictor, plans).page()


def section_of(page, title):
    return next(section for section in page.sections if section.title == title)
