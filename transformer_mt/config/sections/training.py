"""The section `training`: updates, schedule, precision, and how long."""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from transformer_mt.config.schedules import SCHEDULES, ScheduleName, length_of_decay
from transformer_mt.config.sections.consistency import ConsistencyConfig
from transformer_mt.config.sections.init_from import InitFromConfig, PartNames, or_a_folder
from transformer_mt.config.sections.section import LARGEST, PositiveInt, Probability, Section

Precision = Literal["fp32", "bf16", "fp16", "auto"]


class TrainingConfig(Section):
    """Updates, schedule, precision, and how long."""

    max_tokens: PositiveInt | Literal["auto"] = Field(
        default=4096,
        description="Sentences x longest side of a micro-batch, BOS and EOS counted; auto: as many as memory holds.",
    )
    update_tokens: PositiveInt | None = Field(
        default=None, description="With max_tokens: auto: the positions of a whole update, which grad_accum shares out."
    )
    grad_accum: PositiveInt = Field(default=1, description="Micro-batches an update and process.")
    max_steps: PositiveInt | None = None
    max_epochs: PositiveInt | None = None
    max_minutes: Annotated[float, Field(gt=0)] | None = None
    init_from: InitFromConfig | None = Field(
        default=None,
        description="The run whose weights and tokenizers a training begins with; null: random weights.",
        json_schema_extra=or_a_folder,
    )
    freeze: PartNames = Field(default=[], description="Parts of the model that stay as they are.")
    label_smoothing: Probability = 0.1
    label_smoothing_by: Literal["uniform", "unigram"] = Field(
        default="uniform",
        description="unigram: the smoothed part goes to words by their share of the training targets.",
    )
    consistency: ConsistencyConfig | None = Field(
        default=None, description="SimCut or R-Drop: two passes over each pair, which should predict alike; null: one."
    )
    clip_norm: Annotated[float, Field(gt=0)] | None = Field(default=1.0, description="null: no clipping.")
    schedule: ScheduleName = "noam"
    factor: Annotated[float, Field(gt=0)] = Field(default=1.0, description="noam: multiplies the rate.")
    lr: Annotated[float, Field(gt=0)] | None = Field(default=None, description="Peak rate of the other schedules.")
    warmup_steps: Annotated[int, Field(ge=0, le=LARGEST)] = 4000
    decay_steps: PositiveInt | None = Field(
        default=None, description="wsd: the last updates, in which the rate falls to 0; null: a tenth of max_steps."
    )
    adam_betas: list[Probability] = Field(default=[0.9, 0.98], min_length=2, max_length=2)
    adam_eps: Annotated[float, Field(ge=1e-30)] = 1e-9  # a smaller one may be 0 in 32 bits
    weight_decay: Annotated[float, Field(ge=0, lt=1)] = Field(
        default=0.0, description="AdamW: weights of linear maps lose this share times the rate; 0: Adam."
    )
    ema_decay: Probability | None = Field(
        default=None, description="Of the moving average of the weights that is translated with; null: none is kept."
    )
    precision: Precision = "auto"
    device: str = Field(default="auto", pattern=r"^(auto|cpu|mps|cuda(:\d+)?)$")
    compile: bool | Literal["auto"] = Field(
        default="auto", description="Layers and loss by torch.compile; auto: on a GPU, where nothing hinders it."
    )
    deterministic: bool = Field(default=False, description="On a GPU: the same numbers every time, more slowly.")
    sharding: Literal["none", "full"] = Field(
        default="none", description="full: several processes share out weights, gradients and moments (FSDP2)."
    )
    timeout_minutes: Annotated[float, Field(gt=0, le=525_600)] = Field(
        default=10.0, description="Several processes: how long one may keep the others waiting before all stop."
    )
    log_every_steps: PositiveInt = 20
    checkpoint_every_steps: PositiveInt = 500
    keep_checkpoints: PositiveInt = 5
    average_last: PositiveInt | None = Field(
        default=None, description="At the end, average so many of the newest checkpoints; null: none."
    )
    proofs: Literal["stop", "warn", "off"] = Field(
        default="stop",
        description="Before the first step: prove on this model what must hold of any; stop or warn where it does not.",
    )
    on_save_error: Literal["stop", "continue"] = Field(
        default="stop", description="What to do when a checkpoint cannot be written. The last one is always needed."
    )

    @model_validator(mode="after")
    def _check_end(self) -> Self:
        if self.max_steps is None and self.max_epochs is None and self.max_minutes is None:
            raise ValueError("nothing ends the training: set max_steps, max_epochs or max_minutes")
        return self

    @model_validator(mode="after")
    def _check_update_tokens(self) -> Self:
        if self.max_tokens != "auto" and self.update_tokens is not None:
            raise ValueError(
                f"update_tokens goes with max_tokens: auto, and max_tokens is {self.max_tokens}; leave one of them out"
            )
        if self.max_tokens == "auto" and self.update_tokens is None:
            raise ValueError(
                "max_tokens: auto needs update_tokens, the positions of a whole update, for example "
                "update_tokens: 25000"
            )
        if self.max_tokens == "auto" and self.grad_accum != 1:
            raise ValueError(
                f"max_tokens: auto chooses grad_accum, and grad_accum is {self.grad_accum}; leave it out, and raise "
                "update_tokens for larger updates"
            )
        if self.max_tokens == "auto" and self.sharding == "full":
            raise ValueError(
                "max_tokens: auto tries the memory of each process by itself, and under sharding: full none can train "
                "by itself; set max_tokens"
            )
        return self

    @model_validator(mode="after")
    def _check_average(self) -> Self:
        if self.average_last is not None and self.average_last > self.keep_checkpoints:
            raise ValueError(
                f"average_last is {self.average_last}, and of the newest checkpoints only keep_checkpoints "
                f"{self.keep_checkpoints} are kept; raise keep_checkpoints or lower average_last"
            )
        return self

    @model_validator(mode="after")
    def _check_schedule(self) -> Self:
        schedule = SCHEDULES[self.schedule]
        if "lr" not in schedule.keys and self.lr is not None:
            raise ValueError(f"lr has no meaning under schedule: {self.schedule}; use factor")
        if schedule.needs_warmup and self.warmup_steps == 0:
            raise ValueError(f"warmup_steps is 0; the {self.schedule} schedule needs 1 or more")
        if "lr" in schedule.keys and self.lr is None:
            raise ValueError(f"schedule: {self.schedule} needs lr, its peak rate, for example lr: 0.0005")
        if "factor" not in schedule.keys and self.factor != 1.0:
            raise ValueError(
                f"factor has no meaning under schedule: {self.schedule}, and is {self.factor:g}; set it to 1 and use lr"
            )
        if schedule.needs_end and (self.max_steps is None or self.max_steps <= self.warmup_steps):
            steps = "null" if self.max_steps is None else self.max_steps
            raise ValueError(
                f"schedule: {self.schedule} needs max_steps, and more of them than warmup_steps; they are {steps} and "
                f"{self.warmup_steps}"
            )
        if "decay_steps" not in schedule.keys and self.decay_steps is not None:
            raise ValueError(f"decay_steps has no meaning under schedule: {self.schedule}; leave it out")
        if "decay_steps" in schedule.keys and self.max_steps is not None:
            decay = length_of_decay(self.max_steps, self.decay_steps)
            if self.warmup_steps + decay > self.max_steps:
                raise ValueError(
                    f"warmup_steps {self.warmup_steps} and decay_steps {decay} are more than max_steps "
                    f"{self.max_steps}; lower one of them"
                )
        return self

    @model_validator(mode="after")
    def _check_regularisers(self) -> Self:
        if self.label_smoothing_by != "uniform" and self.label_smoothing == 0:
            raise ValueError(
                f"label_smoothing_by is {self.label_smoothing_by} and label_smoothing 0, which smooths nothing; raise "
                "label_smoothing, or leave label_smoothing_by out"
            )
        start = self.consistency.start_step if self.consistency else 1
        if self.max_steps is not None and start > self.max_steps:
            raise ValueError(
                f"consistency.start_step is {start}, and max_steps {self.max_steps} end the training before it; lower "
                "consistency.start_step, or leave consistency out"
            )
        return self

    def consistency_at(self, step: int) -> ConsistencyConfig | None:
        """The consistency of update number `step`, from 1; None where it has one pass."""
        return self.consistency if self.consistency and step >= self.consistency.start_step else None

    def passes_from(self, step: int, steps: float) -> float:
        """The passes of so many updates from this one on: two where there is `consistency`."""
        two = max(0, step + steps - max(step, self.consistency.start_step)) if self.consistency else 0
        return steps + two
