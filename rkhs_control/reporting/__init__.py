"""Reports: what certificates say, what that rests on and how to check it, as one HTML file.

A report is a `page`: a headline and sections, each a title and paragraphs (texts), tables, galleries of pictures and
commands. What is said of `plans` and of `assumptions` are such sections; further ones are given to `Report`, or to
`write_report`, as they are.
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
