"""What TRL's trainers share here: settings, adapter, and a callback that holds them between steps."""

from typing import Any

from peft import LoraConfig
from transformers import TrainerCallback

from harness.stepper import Stepper

STEPS = 1000


class Turns(TrainerCallback):
    """Holds a trainer between steps."""

    stepper: Stepper

    def on_step_begin(self, *_, **__):
        self.stepper.step_begins()

    def on_step_end(self, *_, **__):
        self.stepper.step_ends()


def plain_settings() -> dict[str, Any]:
    """Float32 on the CPU, one pass an update, nothing recomputed, no logging, no saving."""
    return {
        "max_steps": STEPS,
        "gradient_accumulation_steps": 1,
        "lr_scheduler_type": "constant",
        "use_cpu": True,
        "bf16": False,
        "gradient_checkpointing": False,
        "dataloader_pin_memory": False,
        "logging_strategy": "no",
        "save_strategy": "no",
        "report_to": "none",
        "disable_tqdm": True,
    }


def lora(rank: int, task: str, also: list[str] | None = None) -> LoraConfig:
    """A new adapter on all seven projections; `also` names what is trained whole."""
    return LoraConfig(
        r=rank,
        lora_alpha=2 * rank,
        lora_dropout=0.0,
        target_modules=["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"],
        task_type=task,
        modules_to_save=also,
    )
