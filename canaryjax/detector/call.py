"""The calls of a run: each question at each temperature, in an order that treats the three populations alike."""

import json
import random
from collections import defaultdict
from dataclasses import dataclass

from canaryjax.config.detector import DetectorConfig, ProbingConfig
from canaryjax.detector.question import SYSTEM, SYSTEM_VERSION, PromptFormat, make_probes
from canaryjax.detector.records import Probe, Request, Target
from canaryjax.detector.secret import Secret
from canaryjax.detector.targets import Site

KEY_PREFIX = b"canaryjax-request/1/"  # keeps these hashes apart from the ids that the same seed gives


@dataclass(frozen=True)
class Call:
    """One question asked once; its answer is known by all four."""

    target: Target
    probe: Probe
    temperature: float
    repeat: int
    request: Request

    def __repr__(self) -> str:
        return f"Call({self.request.key!r})"


def make_calls(config: DetectorConfig, site: Site, label: str) -> list[Call]:
    """All calls of a run, in the order in which they are sent.

    Chance mixes each population's calls, and the three lie evenly over the run: a model or a service that changes
    meanwhile changes for all alike (SD-1).

    Args:
      config: Its section `probing` says what is asked, how often and at which temperatures (SD-18).
      site: Its targets are asked about.
      label: Of the model, so that no answer of one is taken for another's.

    Raises:
      UserError: A prompt would give away what it asks for.
    """
    style = prompt_format(config)
    by_population: dict[str, list[Call]] = defaultdict(list)
    for target in site.targets:
        for probe in make_probes(target, site, config.probing.kinds, style):
            for temperature, repeat in settings(config.probing):
                request = _request(probe, temperature, repeat, style, config.probing, label, site.secrets.seed)
                by_population[target.population].append(Call(target, probe, temperature, repeat, request))
    rng = random.Random(config.probing.seed)
    placed = []
    for calls in by_population.values():
        rng.shuffle(calls)
        placed += [((place + rng.random()) / len(calls), call.request.key, call) for place, call in enumerate(calls)]
    return [call for _, _, call in sorted(placed, key=lambda item: item[:2])]


def settings(probing: ProbingConfig) -> list[tuple[float, int]]:
    """Temperature and repeat of each time that a question is asked; at 0 once, as it would be the same answer (SD-A3).

    >>> settings(ProbingConfig())
    [(0.0, 0), (0.8, 0), (0.8, 1)]
    """
    return [(0.0, 0)] * probing.greedy + [(probing.temperature, repeat) for repeat in range(probing.repeats)]


def prompt_format(config: DetectorConfig) -> PromptFormat:
    """How prompts are put; an endpoint of chat completions has but one way."""
    return "chat" if config.model.backend == "api" else config.probing.prompt_format


def _request(
    probe: Probe, temperature: float, repeat: int, style: PromptFormat, probing: ProbingConfig, label: str, seed: Secret
) -> Request:
    # Weights that are run as plain text have no system prompt to heed, and nothing to browse with.
    system = SYSTEM if style == "chat" else ""
    what = [label, probe.kind, probe.target, probe.prompt, temperature, repeat, probing.max_tokens, probing.seed]
    key = seed.mac(KEY_PREFIX + json.dumps([SYSTEM_VERSION, system, *what]).encode()).hex()
    return Request(
        key=key,
        system=system,
        prompt=probe.prompt,
        temperature=temperature,
        seed=int(key[:8], 16) >> 1,  # 31 bits: some endpoints take no more
        max_tokens=probing.max_tokens,
    )
