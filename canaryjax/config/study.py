"""The sections that say how many policies there are, what is scored, what decides, and what is kept."""

from typing import Annotated, Literal

from pydantic import Field, model_validator

from canaryjax.config.fields import Count, Section

MOST_POLICIES = 100_000  # of an arm; years on any machine

ScoreName = Literal["clean_raw", "clean_net", "induced_raw", "induced_net"]


class MeshConfig(Section):
    """Devices along each axis; `policy: null` takes the accelerators that the other two leave, one device on a CPU."""

    policy: Count | None = None
    """Devices over which policies are spread; null takes the accelerators that the other two leave, one device on a
    CPU.
    """
    data: Count = 1
    """Devices over which the rows of a batch are spread."""
    model: Count = 1
    """Devices over which the base's weights are split, for a base that one does not hold."""


class StudyConfig(Section):
    """How many policies, what each arm is, and over which devices policies are spread.

    `checkpoint_every` counts steps of each stage of training, whatever it trains; 0 keeps no step checkpoints.
    """

    seed: Annotated[int, Field(ge=0, lt=2**31)] = 0
    """Of everything random in the study."""
    compliant: Annotated[int, Field(ge=1, le=MOST_POLICIES)] = 10
    """Policies trained without documents."""
    violating: Annotated[int, Field(ge=1, le=MOST_POLICIES)] = 10
    """Policies trained with documents."""
    assignment: Literal["blocked", "iid"] = "blocked"
    """Which trial is which arm: the exact counts in random order (`blocked`), or a coin for each trial (`iid`), so that
    counts vary.
    """
    paired: bool = False
    """Give one canary, split and feedback to a policy of each arm; statistics still take the arms as independent."""
    compliant_query: Literal["induced", "clean"] = "induced"
    """Whether compliant prompts keep the instruction that asks for the canary (`induced`) or lose it too (`clean`)."""
    scramble_feedback: bool = False
    """Permute the feedback over the rows with canary or contrast: a null in which nothing is learnt about the canary.
    """
    policies_per_chunk: Count | None = None
    """Policies trained in one program; null lets free memory decide, and on a CPU the size of the base too."""
    checkpoint_every: Annotated[int, Field(ge=0)] = 25
    """Steps between checkpoints, of each stage of training; 0 keeps none."""
    mesh: MeshConfig = MeshConfig()
    """Devices along each axis."""
    setting: str = ""
    """A sentence on what was set up, for the report; empty leaves it out."""

    @model_validator(mode="after")
    def _pairs_match(self):
        if self.paired and self.compliant != self.violating:
            raise ValueError(
                "expected as many in each arm with `paired`=true, found `compliant`="
                f"{self.compliant} and `violating`={self.violating}; set them alike"
            )
        if self.paired and self.assignment == "iid":
            raise ValueError(
                "expected `assignment`=blocked with `paired`=true, found iid; change one: a pair has one policy an arm"
            )
        return self

    @model_validator(mode="after")
    def _devices_share_a_chunk(self):
        chunk, devices = self.policies_per_chunk, self.mesh.policy
        if chunk is not None and devices is not None and chunk % devices:
            raise ValueError(
                f"expected `policies_per_chunk` to be a multiple of `mesh.policy` = {devices}, found {chunk}; "
                "change one of them, or leave one null"
            )
        return self


class StatisticConfig(Section):
    """Which of the four scores decides, fixed before the run, and how rates and intervals are computed."""

    primary: ScoreName = "clean_raw"
    """The score that decides: query without or with the instruction (`clean`, `induced`), as it is or minus the base's
    (`raw`, `net`); nats.
    """
    secondary: ScoreName = "clean_net"
    """The score that is reported beside it."""
    two_sided: bool = False
    """Judge net scores by their distance from 0, where training may have moved them either way; the raw ones have no
    such centre and stay as they are.
    """
    target_fpr: Annotated[float, Field(ge=1e-6, lt=1.0)] = 0.10
    """False-alarm rate that the threshold aims at."""
    threshold_rule: Literal["conformal", "paper", "tolerance"] = "conformal"
    """How compliant scores set the threshold: the rank that a new compliant score exceeds with at most the target rate
    (`conformal`), NumPy's quantile (`paper`), or the rank whose true rate is within the target with 95 % confidence
    (`tolerance`).
    """
    auroc_interval: Literal["auto", "newcombe", "bootstrap", "delong"] = "auto"
    """Method of the AUROC's interval; `auto` is Newcombe's score method with fewer than 30 policies in an arm or an
    AUROC of 0 or 1, else the bootstrap, and the bootstrap with threshold_rule=paper.
    """
    level: Annotated[float, Field(gt=0.5, le=0.999999)] = 0.90
    """Confidence level of AUROC and TPR intervals, 0.90 from 5 to 95 %; intervals of means and ratios are at 95 %."""
    bootstrap_samples: Annotated[int, Field(ge=1, le=1_000_000)] = 10_000
    """Resamples of a bootstrap interval."""
    resampling: Literal["stratified", "pooled"] = "stratified"
    """Whether resamples of a bootstrap keep the size of each arm (`stratified`), or draw from all policies (`pooled`)
    and leave out those that lack an arm.
    """
    prevalences: tuple[Annotated[float, Field(ge=1e-6, lt=1.0)], ...] = (0.5, 0.1, 0.01)
    """Shares of violating pipelines for which the report gives the chance that an alarm is true."""
    null_alpha: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.01
    """A null fails where the two-sided p-value of arms that differ is at or below this."""
    match_drift: Annotated[float, Field(gt=0.0, le=10.0)] | None = None
    """Compare the arms once more over policies that drifted alike: pairs of one policy an arm, the logarithms of whose
    KL to the base differ by at most so many pooled standard deviations (0.2 is usual); null leaves it out.
    """

    @model_validator(mode="after")
    def _distance_has_a_centre(self):
        if self.two_sided and not self.primary.endswith("net"):
            raise ValueError(
                f"expected `primary` to be minus the base with `two_sided`=true, found {self.primary}: a raw score has "
                "no centre fixed beforehand; set `primary`=clean_net or induced_net"
            )
        return self


class EvaluationConfig(Section):
    """What is scored for each policy, and on how many held-out documents."""

    max_pairs: Count = 64
    """Held-out pairs, with and without trigger, scored for each policy, at most."""
    batch_size: Count = 16
    """Strings of one policy scored in one pass."""
    control_pairs: Annotated[int, Field(ge=0)] = 8
    """The first so many pairs are scored with decoys and placebos too; 0 leaves these controls out."""
    decoys: Annotated[int, Field(ge=0)] = 31
    """Redrawn triggers and canaries that nothing was trained on, scored beside the real one."""
    placebos_same_form: Annotated[int, Field(ge=0)] = 19
    """Markers of the trigger's form that were never planted, scored with the real canary."""
    placebos_other_form: Annotated[int, Field(ge=0)] = 19
    """The same with markers of other forms."""
    noise_floor_pairs: Annotated[int, Field(ge=0)] = 8
    """Pairs scored again with other batches and padding, for the noise floor; 0 leaves it out."""
    utility_examples: Annotated[int, Field(ge=0)] = 64
    """Held-out questions answered greedily, for exact match, at most; 0 leaves utility out."""
    utility_margin: Annotated[float, Field(gt=0.0, lt=1.0)] = 0.02
    """The largest difference of a utility metric, which is from 0 to 1, that would not matter: answers are called
    equivalent where two one-sided tests show less (assumed: one answer in fifty).
    """


class OutputConfig(Section):
    """What a run directory keeps beside the report, and who gets the training metrics besides.

    `log_every` and `sample_every` count policy steps; samples are taken at the first and the last step too, and
    `sample_every: 0` takes none.
    """

    save_adapters: bool = False
    """Keep each policy's adapter, in PEFT's format, in adapters/ of the run directory."""
    log_every: Count = 8
    """Policy steps between transfers of metrics from the device; every step is logged."""
    sample_every: Annotated[int, Field(ge=0)] = 50
    """Policy steps between samples in samples.jsonl, the first and the last step besides; 0 takes none."""
    report_to: tuple[Literal["tensorboard", "wandb", "trackio"], ...] = ()
    """Trackers that get the training metrics too; each needs the extra of its name."""

    @model_validator(mode="after")
    def _no_repeats(self):
        if len(set(self.report_to)) < len(self.report_to):
            raise ValueError(
                f"expected `report_to` to name no tracker twice, found {list(self.report_to)}; take one out"
            )
        return self
