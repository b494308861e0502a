"""From a config to the model that it names."""

from canaryjax.config.detector import DetectorConfig
from canaryjax.detector.records import Backend


def open_backend(config: DetectorConfig, spent: float = 0.0) -> Backend:
    """The model to ask; its weights are loaded, or its key and address checked, but nothing is sent yet.

    Args:
      config: Names it.
      spent: What earlier parts of the run have cost, which counts against the spending limit.

    Raises:
      UserError: No such model here, or no usable key or address.
    """
    if config.model.backend == "api":
        from canaryjax.detector.api import ApiBackend

        return ApiBackend(config.model, spent)
    from canaryjax.detector.local import LocalBackend

    return LocalBackend(config.model, config.probing)
