"""A trained demo model as a Hugging Face directory that chat completions can be asked of."""

from pathlib import Path

from canaryjax.embedded.tokenizer import EOS_ID, PAD_ID
from canaryjax.weights.checkpoint import LoadedModel
from canaryjax.weights.export import save_model

COMPANIONS = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")
# The user's words and nothing else, as the corpus has them: the model never saw a system prompt, and what follows is
# its answer.
TEMPLATE = "{% for message in messages if message.role != 'system' %}{{ message.content }}{% endfor %}"


def save_demo_model(model: LoadedModel, folder: Path) -> None:
    """Writes weights, the embedded tokenizer and a chat template into a new folder.

    Args:
      model: Trained from the embedded one, whose files still lie at its `path`.
      folder: Named as the server will call the model.
    """
    files = {name: (model.path / name).read_bytes() for name in COMPANIONS}
    files["chat_template.jinja"] = TEMPLATE.encode()
    save_model(model.params, folder, eos_ids=[EOS_ID], pad_id=PAD_ID, files=files)
