"""Tables, charts and pages from plain data."""

from regard.report.chart import Series, line_chart
from regard.report.heatmap import heatmap
from regard.report.markup import Html, tag
from regard.report.page import Section, page
from regard.report.table import Table
from regard.report.training_report import RunFacts, run_report

__all__ = ["Html", "RunFacts", "Section", "Series", "Table", "heatmap", "line_chart", "page", "run_report", "tag"]
