"""What studies that run one after another in one process need not load or train twice."""

from collections.abc import Hashable

from canaryjax.audit.base import load_base
from canaryjax.config import AuditConfig
from canaryjax.models.lora import Adapter
from canaryjax.weights.checkpoint import LoadedModel


class BaseShelf:
    """The base model that was loaded last, and the warm starts that were trained on it.

    One model alone is kept, since two may not fit. Attributes: `warm_starts`, adapters by `warm_start_digest`.
    """

    def __init__(self) -> None:
        self.warm_starts: dict[str, Adapter] = {}
        self._key: Hashable = None
        self._model: LoadedModel | None = None

    def load(self, config: AuditConfig) -> LoadedModel:
        """The base of a study, from here where it is the last one's; raises as `load_base`."""
        # What `load_base` reads of a config, and nothing else.
        key = (config.model.path, config.model.dtype, config.study.mesh.model > 1)
        if self._model is None or key != self._key:
            self._model, self.warm_starts = None, {}  # let go before the next one is read
            self._model, self._key = load_base(config), key
        return self._model
