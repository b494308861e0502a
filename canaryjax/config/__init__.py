"""One validated tree for an audit; an unknown key is an error that names the nearest known one."""

from canaryjax.config.load import OBSERVING, UNREADABLE, config_hash, find_config, load_config, validate_config
from canaryjax.config.schema import AuditConfig

__all__ = ["OBSERVING", "UNREADABLE", "AuditConfig", "config_hash", "find_config", "load_config", "validate_config"]
