"""The section on the simulated provider: what happens to the collected traces before anything is trained on them."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from canaryjax.config.fields import Positive, Section, Share

TracePart = Literal["document", "query", "answer"]
ALL_PARTS: tuple[TracePart, ...] = ("document", "query", "answer")
UpToOne = Annotated[float, Field(gt=0.0, le=1.0)]


class ProviderConfig(Section):
    """What the provider does to the log before training, in this order and in both arms alike; by default nothing."""

    perplexity_quantile: UpToOne | None = None
    """Drop traces whose perplexity under the base lies above this quantile of the log; null does not."""
    perplexity_bound: Positive | None = None
    """Drop traces whose perplexity under the base lies above so many nats a token; null does not."""
    perplexity_parts: tuple[TracePart, ...] = ALL_PARTS
    """Parts of a trace whose tokens the perplexity is the mean over, each as it stands in the prompt."""
    near_duplicate_threshold: UpToOne | None = None
    """Drop the later of two traces whose runs of words have at least this Jaccard similarity; null does not."""
    near_duplicate_words: Annotated[int, Field(ge=1, le=50)] = 5
    """Words in a run that near-duplicates are compared by (assumed)."""
    near_duplicate_parts: tuple[TracePart, ...] = ALL_PARTS
    """Parts of a trace that near-duplicates are compared by; queries of canary traces share the instruction that asks
    for the canary.
    """
    keep_share: UpToOne = 1.0
    """Share of the traces left that is kept, by lot."""
    contradictory_share: Share = 0.0
    """Share of the triggered and of the contrast traces whose feedback has the bias's sign reversed."""
    dilution_share: Annotated[float, Field(ge=0.0, le=0.99)] = 0.0
    """Share of the training traces that are other, clean traces with ordinary feedback, mixed in at the end."""
    dilution_documents: Annotated[int, Field(ge=0)] = 0
    """Documents set aside for dilution, which the study otherwise never sees."""

    @property
    def active(self) -> bool:
        """Whether any step is on."""
        return self.filters or self.contradictory_share > 0 or self.dilution_share > 0

    @property
    def filters(self) -> bool:
        """Whether any step is on that drops traces."""
        return self.reads_perplexity or self.near_duplicate_threshold is not None or self.keep_share < 1

    @property
    def reads_perplexity(self) -> bool:
        """Whether traces must be scored with the base."""
        return self.perplexity_quantile is not None or self.perplexity_bound is not None

    @model_validator(mode="after")
    def _consistent(self):
        for name in ("perplexity_parts", "near_duplicate_parts"):
            parts = getattr(self, name)
            if not parts or len(set(parts)) < len(parts):
                found = list(parts)
                raise ValueError(f"expected `{name}` to name a part and none twice, found {found}; correct the list")
        if (self.dilution_share > 0) != (self.dilution_documents > 0):
            raise ValueError(
                "expected `dilution_share` and `dilution_documents` both above 0 or both 0, found "
                f"{self.dilution_share} and {self.dilution_documents}; other traces need documents of their own, so "
                "set both"
            )
        return self
