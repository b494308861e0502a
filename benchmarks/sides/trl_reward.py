"""TRL's RewardTrainer on the same responses, in pairs: its own loop, loss and optimiser."""

import tempfile

import numpy as np
import torch
import transformers
from datasets import Dataset
from peft import load_peft_weights, set_peft_model_state_dict
from trl import RewardConfig, RewardTrainer

from harness.agreement import Answers
from harness.stepper import Stepper
from sides.our_reward import RewardCase
from sides.torch_model import gradients_of, sequences_of, use_cores
from sides.trl_turns import Turns, lora, plain_settings


class TrlReward:
    """One reward model; a step takes half as many pairs as there are responses, so as many sequences as ours."""

    def __init__(self, case: RewardCase) -> None:
        self.case, turns = case, Turns()
        use_cores()
        model = transformers.AutoModelForSequenceClassification.from_pretrained(
            case.model, dtype=torch.float32, attn_implementation="sdpa", num_labels=1
        )
        self.trainer = RewardTrainer(
            model=model,
            args=RewardConfig(
                output_dir=tempfile.mkdtemp(),
                per_device_train_batch_size=case.shape.group // 2,
                max_length=None,
                center_rewards_coefficient=0.01,
                **plain_settings(),
            ),
            train_dataset=_pairs(case),
            processing_class=transformers.PreTrainedTokenizerFast.from_pretrained(case.tokenizer),
            callbacks=[turns],
            peft_config=lora(case.shape.rank, "SEQ_CLS", ["score"]),
        )
        stored = load_peft_weights(str(case.adapter), device="cpu")
        stored["base_model.model.score.weight"] = torch.tensor(case.head)[None]
        set_peft_model_state_dict(self.trainer.model, stored)
        turns.stepper = self.stepper = Stepper(self.trainer.train)

    def seconds(self) -> float:
        """A whole step of the trainer's loop, without its data loader."""
        return self.stepper.seconds()

    def answers(self) -> Answers:
        """As ours: rewards of the trainer's model, and the gradient of their weighted sum for the adapter."""
        case, model = self.case, self.trainer.model
        mask = np.concatenate([np.ones((len(case.mask), len(case.context)), bool), case.mask], axis=1)
        found = model(
            input_ids=sequences_of(case.context, case.responses),
            attention_mask=torch.tensor(mask, dtype=torch.int64),
            use_cache=False,
        )
        rewards = found.logits[:, 0]
        (rewards * torch.tensor(case.weights)).sum().backward()
        gradients = {name: x for name, x in gradients_of(model).items() if ".lora_" in name}
        model.zero_grad()
        return {"rewards": rewards.detach().numpy(), "gradients": gradients}


def _pairs(case: RewardCase) -> Dataset:
    own = [ids[real] for ids, real in zip(case.responses, case.mask, strict=True)]
    rows = [np.concatenate([case.context, ids]).tolist() for ids in own]
    half = len(rows) // 2
    return Dataset.from_dict({"chosen_ids": rows[:half], "rejected_ids": rows[half:]})
