"""`canaryjax detector`: the site-canary detector's commands, each in a file of its own."""

import typer

from canaryjax.cli import detector_demo, detector_edge, detector_probe, detector_report, detector_site

app = typer.Typer(
    help="Asks a model, with controls, whether it learned the sentences planted on a site.",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)
app.command("secrets")(detector_site.secrets)
app.command("lists")(detector_site.lists)
app.command("generate")(detector_site.generate)
app.command("sentences")(detector_site.sentences)
app.command("verify")(detector_site.verify)
app.command("decode")(detector_site.decode)
app.command("edge")(detector_edge.edge)
app.command("probe")(detector_probe.probe)
app.command("report")(detector_report.report)
app.command("demo")(detector_demo.demo)
