"""What a loader must be told: the part of the config that says where examples come from."""

from typing import Protocol


class DataSource(Protocol):
    """`canaryjax.config.schema.DataConfig` is one."""

    @property
    def kind(self) -> str:
        """`embedded`, `qmsum`, or a key of `canaryjax.data.formats.READERS`."""

    @property
    def path(self) -> str | None:
        """A file or a folder, for every kind but `embedded`; for `repliqa` also a name on the hub."""

    @property
    def split(self) -> str | None:
        """Splits of a folder or of the hub, joined by `+`; None means the only one there is."""

    @property
    def documents(self) -> int | None:
        """How many documents to use; None means all."""

    @property
    def max_document_words(self) -> int | None:
        """Documents with more words are left out; None means no limit."""

    @property
    def questions_per_document(self) -> int | None:
        """The first so many questions of each document; None means all."""

    @property
    def index(self) -> str | None:
        """QMSum: a JSON file that names the meeting of each original record."""

    @property
    def qmsum_document(self) -> str:
        """QMSum: `span`, each query's gold span, or `transcript`, the beginning of the meeting."""

    @property
    def transcript_words(self) -> int:
        """QMSum: how many words of a transcript are kept."""

    @property
    def general_queries(self) -> bool:
        """QMSum: whether queries on the whole meeting are asked too, of its transcript."""

    @property
    def markup(self) -> str:
        """QMSum: `strip` or `keep` the tags of a transcript, such as `{vocalsound}`."""

    @property
    def qmsum_group(self) -> str:
        """QMSum: what a split never cuts apart: a `meeting`, or a `series` of them."""
