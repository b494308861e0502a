"""Sections of a config as trainers take them."""

from canaryjax.config.training import LoraConfig, OptimizerConfig
from canaryjax.rl.settings import AdapterSettings, OptimizerSettings


def adapter_settings(section: LoraConfig) -> AdapterSettings:
    """A LoRA section as the trainer takes it."""
    return AdapterSettings(
        section.rank, section.alpha, section.dropout, section.targets, rank_stabilised=section.rank_stabilised
    )


def optimizer_settings(section: OptimizerConfig) -> OptimizerSettings:
    """An optimiser section as the trainer takes it."""
    return OptimizerSettings(**section.model_dump())
