"""A report's table as a terminal shows it."""

from rich.table import Table as Grid
from rich.text import Text

from canaryjax.report.tables import Table


def grid(title: str, table: Table) -> Grid:
    """A table with its title; numbers stay whole where names give way."""
    shown = Grid(title=Text(title), title_justify="left", title_style="bold", pad_edge=False, box=None,
                padding=(0, 1, 0, 0), show_header=bool(table.head))  # fmt: skip
    for place in range(max(map(len, table.rows), default=len(table.head))):
        name = table.head[place] if table.head else ""
        numbers = table.numeric and place > 0
        # A long name goes on in the next line: an ellipsis would make two names one.
        shown.add_column(Text(name), justify="right" if numbers else "left", no_wrap=numbers, overflow="fold")
    for row in table.rows:
        # Text, not markup: a name such as "[red]" may not colour anything.
        shown.add_row(*(Text(cell) for cell in row))
    return shown
