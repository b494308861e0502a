"""A configuration's entries, each read at most once as a checked type; what nobody read is an error."""

import difflib

from canaryjax.errors import UserError

MOST_LAYERS = 10_000  # what is named once a layer is built before any file is compared with it

# Read by training, generation or bookkeeping code and never by a forward pass without dropout.
HARMLESS = frozenset(
    {
        *("_attn_implementation", "_attn_implementation_autoset", "_commit_hash", "_name_or_path", "architectures"),
        *("attention_dropout", "attn_implementation", "bad_words_ids", "begin_suppress_tokens", "bos_token_id"),
        *("cache_implementation", "chunk_size_feed_forward", "decoder_start_token_id", "diversity_penalty"),
        *("do_sample", "dtype", "early_stopping", "encoder_no_repeat_ngram_size", "eos_token_id"),
        *("exponential_decay_length_penalty", "finetuning_task", "forced_bos_token_id", "forced_eos_token_id"),
        *("id2label", "initializer_range", "is_llama_config", "label2id", "length_penalty"),
        *("max_length", "max_new_tokens", "max_position_embeddings", "min_length", "model_type", "name_or_path"),
        *("no_repeat_ngram_size", "num_beam_groups", "num_beams", "num_labels", "num_return_sequences"),
        *("output_attentions", "output_hidden_states", "output_scores", "pad_token_id", "prefix", "pretraining_tp"),
        *("problem_type", "remove_invalid_values", "repetition_penalty", "return_dict", "return_dict_in_generate"),
        *("sep_token_id", "suppress_tokens", "task_specific_params", "temperature", "tokenizer_class", "top_k"),
        *("top_p", "torch_dtype", "torchscript", "transformers.js_config", "transformers_version", "typical_p"),
        *("unsloth_fixed", "unsloth_version", "use_bfloat16", "use_cache", "vocab_file"),
    }
)
# Change what a forward pass does, in ways that are not implemented: named in the message, unless empty or false.
_REFUSED = {
    "quantization_config": "quantised safetensors are not read; use float32 or bfloat16 weights, or a GGUF file",
    "auto_map": "remote code is never run",
    "use_bidirectional_attention": "only causal attention is implemented",
    "is_encoder_decoder": "encoders are not implemented",
    "is_decoder": "only plain decoders are implemented",
    "add_cross_attention": "cross-attention is not implemented",
    "tie_encoder_decoder": "encoders are not implemented",
    "pruned_heads": "pruned heads are not implemented",
    "rope_interleaved": "rotary pairs must be two halves",
    "per_layer_config": "layers of different sizes are not implemented",
    "cross_attention_hidden_size": "cross-attention is not implemented",
}


class Fields:
    """Entries of a configuration with the family's documented defaults.

    Args:
      raw: The configuration's JSON object.
      defaults: What an absent entry means; an absent entry without a default is an error.
      where: The file, for messages.
    """

    def __init__(self, raw: dict, defaults: dict, where: str):
        self._raw, self._defaults, self.where = raw, defaults, where
        self._read: set[str] = set()

    def has(self, name: str) -> bool:
        """True where the configuration gives the entry a value other than null."""
        return self._raw.get(name) is not None

    def value(self, name: str):
        """The entry as it stands, or its default, or None. An explicit null stays null: it switches a part off."""
        self._read.add(name)
        return self._raw.get(name, self._defaults.get(name))

    def integer(self, name: str) -> int:
        """A positive whole number."""
        value = self.value(name)
        if type(value) is not int or not 0 < value < 2**31:
            self.refuse(name, "a positive whole number", value)
        return value

    def layers(self) -> int:
        """How many layers there are: a number that a model can have."""
        count = self.integer("num_hidden_layers")
        if count > MOST_LAYERS:
            self.refuse("num_hidden_layers", f"at most {MOST_LAYERS}", count)
        return count

    def number(self, name: str) -> float:
        """A positive finite number."""
        value = self.value(name)
        if type(value) not in (int, float) or not 0 < value < 1e30:  # NaN and infinity compare false
            self.refuse(name, "a positive number", value)
        return float(value)

    def optional_integer(self, name: str) -> int | None:
        """A positive whole number or null."""
        return None if self.value(name) is None else self.integer(name)

    def optional_number(self, name: str) -> float | None:
        """A positive finite number or null."""
        return None if self.value(name) is None else self.number(name)

    def boolean(self, name: str) -> bool:
        """True or false."""
        value = self.value(name)
        if not isinstance(value, bool):
            self.refuse(name, "true or false", value)
        return value

    def refuse(self, name: str, expected: str, found: object) -> None:
        """Raises for a value that cannot be used."""
        shown = repr(found) if found is not None or name in self._raw else "no such entry"
        raise UserError(f"expected {name} to be {expected} in {self.where}, found {shown}; correct the configuration")

    def finish(self) -> None:
        """Raises when an entry that may change the arithmetic was read by nobody.

        Raises:
          UserError: Names each such entry and, where one is close, the entry that may have been meant.
        """
        for name, reason in _REFUSED.items():
            if self._raw.get(name) not in (None, False, {}, []):
                raise UserError(f"expected no {name} in {self.where}, found {self._raw[name]!r}: {reason}")
        left = sorted(set(self._raw) - self._read - HARMLESS - set(_REFUSED))
        left = [name for name in left if self._raw[name] is not None]
        if left:
            near = {name: difflib.get_close_matches(name, self._read, 1) for name in left}
            hints = "".join(f" ({name}: {match[0]} is known)" for name, match in near.items() if match)
            raise UserError(
                f"expected only entries whose effect is known in {self.where}, found {left}{hints}; "
                "this model may need arithmetic that is not implemented"
            )
