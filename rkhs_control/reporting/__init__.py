"""Reports: what certificates say, what they rest on and how to check them, as one HTML file.

A report is a `page`: a headline and sections, each a title and paragraphs (texts), tables, galleries of pictures and
commands. `plans` and `assumptions` build such sections; further ones can be passed to `Report` or `write_report` as
they are.
"""

from .document import Report as Report
from .document import write_report as write_report
from .page import Cell as Cell
from .page import Commands as Commands
from .page import Gallery as Gallery
from .page import Picture as Picture
from .page import Section as Section
from .page import Table as Table
from .reported import ReportedPlan as ReportedPlan
