"""Reports: read a run directory, never a model."""

from canaryjax.report.figures import write_figures
from canaryjax.report.page import render_report
from canaryjax.report.terminal import terminal_summary
from canaryjax.report.verdict import Verdict, judge

__all__ = ["Verdict", "judge", "render_report", "terminal_summary", "write_figures"]
