"""The task of every domain whose models write texts: the loss of given texts, and texts that the model writes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn
from torch.nn import functional as F

from zoo import distributed
from zoo.attention import AttentionMap, DenseSupport, Monotonic, record, sites
from zoo.attention.recording.recorder import Recording
from zoo.decoding.beam import BeamSearch
from zoo.decoding.hypothesis import Hypothesis
from zoo.errors import ConfigError, escape_control, truncate
from zoo.nn.seq2seq.model import Seq2SeqModel
from zoo.optim import OptimizerConfig
from zoo.tasks.base import Invariance, Task
from zoo.tasks.baselines import Baseline, compare_with_texts
from zoo.tasks.command_options import CommandOption
from zoo.tasks.seq2seq.batch import AnyBatch
from zoo.tasks.seq2seq.decoding_config import DecodingConfig, MaxLength
from zoo.tasks.seq2seq.decoding_options import SEARCH_OPTIONS, WRITING_OPTIONS, choose_decoding
from zoo.tasks.seq2seq.metrics import TextMetrics
from zoo.tasks.seq2seq.predictions import PredictionTable
from zoo.tasks.seq2seq.reinforce import ReinforceLoss
from zoo.tasks.seq2seq.scheduled_sampling import ScheduledSampling, mix_predictions
from zoo.tasks.seq2seq.score_metrics import CorpusScoreMetric
from zoo.tasks.seq2seq.targets import Targets
from zoo.tasks.seq2seq.text_codec import END
from zoo.tasks.seq2seq.word_alignment import ForcedDecoding, force_decode_texts
from zoo.types import Probability, validate_ranges

DEFAULT_SEARCH, DEFAULT_LONGEST = BeamSearch(), MaxLength()


@validate_ranges
class Seq2SeqTask(Task):
    """Cross-entropy of given texts; in validation and tests, scores of those that the model writes on its own.

    In validation it writes by greedy search, in tests and predictions by `search`. A domain gives its net, its figures
    and its maps.

    Args:
        net: The net.
        optimization: Optimizer, schedule, frozen layers and rates.
        validated: Names of the figures of a validation: `val/NAME` is the figure NAME of a score of `figures`.
        figures: Figures of a test.
        smoothing: Of the targets in training: this share is spread evenly over all tokens (Szegedy et al. 2016).
        search: Beam search of tests and predictions.
        longest: Limit of the length of a text.
        scheduled: Scheduled sampling in training. Default: the decoder reads the given text.
        reward: Class or partial of the reward of hard attention, for nets whose attention learns by it alone.
    """

    source_noun: ClassVar[str]
    """Word for what is read, such as "text" or "picture"."""
    text_noun: ClassVar[str]
    """Word for what is written, such as "translation" or "caption"; the column of `zoo predict`."""
    net: Seq2SeqModel
    rewards = True

    def __init__(
        self,
        *,
        net: Seq2SeqModel,
        optimization: OptimizerConfig,
        validated: Sequence[str],
        figures: TextMetrics,
        smoothing: Probability = 0.1,
        search: BeamSearch = DEFAULT_SEARCH,
        longest: MaxLength = DEFAULT_LONGEST,
        scheduled: ScheduledSampling | None = None,
        reward: Callable[[], ReinforceLoss] = ReinforceLoss,
    ) -> None:
        super().__init__(optimization=optimization)
        self.net = net
        if search.ranking.coverage and not self.knows_coverage:
            raise ConfigError("model.search.ranking.coverage: this model does not know what it has covered; write 0")
        self.smoothing = smoothing
        self.writing = DecodingConfig(search, longest)
        self.scheduled = scheduled
        self._rewarded = self.find_reward_sites()
        self.reward = reward() if self._rewarded else None
        self.val_loss = distributed.GlobalMean()
        self.validated = nn.ModuleDict({name: CorpusScoreMetric(figures.find_score(name), name) for name in validated})
        self.figures = figures

    @property
    def knows_coverage(self) -> bool:
        """Whether the net knows how much of its source a text has covered, as a coverage penalty needs."""
        return self.net.align is not None and hasattr(self.net, "coverage")

    def forward(self, batch: Any) -> Float[Tensor, "b n vocabulary"]:
        """Returns the logits of every step, if the decoder reads the given texts."""
        return self.net.whole(batch.source, self.require_targets(batch).read)

    def on_train_batch_start(self, batch: Any, batch_idx: int) -> None:
        for part in self.modules():
            if isinstance(part, Monotonic):
                part.set_training_step(self.global_step)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        targets = self.require_targets(batch)
        if self.reward is None:
            total, added = self._losses(batch, targets, "sum"), None
        else:
            with record(self, layers=self._rewarded, grad=True) as maps:
                losses = self._losses(batch, targets, "none")
            total, added = losses.sum(), self._rewards(self.reward, batch, maps, losses)
        count = len(targets.tokens[targets.is_real])
        loss = distributed.mean_loss(total, count)
        self.log_training({"train/loss": loss}, len(batch))
        return loss if added is None else loss + distributed.mean_loss(added, count)

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        targets = self.require_targets(batch)
        logits = self.net.head(self.net.features(batch.source, targets.read)[targets.is_real])
        self.val_loss.update(F.cross_entropy(logits, targets.tokens[targets.is_real], reduction="none"))
        texts = [first for first, *_ in self.texts(batch, self.write(batch, self.writing.greedy()))]
        metrics: dict[str, Any] = dict(self.validated.items())
        references = batch.comparable_references
        for name, metric in metrics.items():
            metric.update(self.figures.find_score(name).statistics(texts, references))
        named = {f"val/{name}": metric for name, metric in metrics.items()}
        self.log_evaluation({"val/loss": self.val_loss, **named}, len(batch))

    def on_test_epoch_start(self) -> None:
        self.figures.reset()

    def test_step(self, batch: Any, batch_idx: int) -> None:
        """Every figure of a batch, whichever split it is of; `run` names them after it."""
        best = [each[0] for each in self.write(batch)]
        self.figures.add(batch, best, self.force_decode(batch, best), self.force_references(batch))

    def on_test_epoch_end(self) -> None:
        self.log_evaluation(self.figures.find_counted())
        self.figures.finalize()  # here, where all processes are

    def tables(self) -> Mapping[str, list[dict[str, Any]]]:
        """The tables of the last split that was evaluated, such as a score by the length of the source."""
        return self.figures.tables

    def verdicts(self, metrics: Mapping[str, Any], examples: int) -> Sequence[str]:
        if (text := self.figures.only_text) is None:
            return ()
        return (
            f"The model writes the same {self.text_noun} for every {self.source_noun} of the test split, "
            f"'{truncate(escape_control(text))}'. It has not learned to read its "
            f"{self.source_noun}s; train for more epochs (data.max_epochs), or on more examples",
        )

    def require_targets(self, batch: AnyBatch) -> Targets:
        """Returns the given texts of a batch."""
        if batch.targets is None:
            source, text = self.source_noun, self.text_noun
            raise ConfigError(
                f"a {source} has no {text}, which training and evaluation need; give one for each {source}"
            )
        return batch.targets

    @torch.no_grad()
    def write(self, batch: Any, writing: DecodingConfig | None = None) -> list[list[Hypothesis]]:
        """Returns the texts that the model writes of each example, best first."""
        return (writing or self.writing)(self.net, batch.source, batch.ids)

    def texts(self, batch: AnyBatch, written: Sequence[Sequence[Hypothesis]]) -> list[list[str]]:
        """Returns hypotheses of each example as people read them."""
        return [[batch.language.text(each.tokens) for each in hypotheses] for hypotheses in written]

    def force_decode(self, batch: Any, written: Sequence[Hypothesis]) -> ForcedDecoding:
        """Lets the net read one of its texts of each example again, which maps come from."""
        return force_decode_texts(self.net, batch.source, [each.target(END) for each in written])

    def force_references(self, batch: Any) -> ForcedDecoding:
        """Lets the net read the given texts."""
        return force_decode_texts(
            self.net, batch.source, [[*text, END] for text in self.require_targets(batch).texts()]
        )

    def places(self, batch: Any) -> Bool[Tensor, "b k"]:
        """Returns the mask of the places that the net attends to: those of the source, unless the net merges them."""
        found: Tensor = batch.source.is_real
        return found

    def gold(self, batch: Any) -> Bool[Tensor, "b n k"] | None:
        """Returns the mask of the places that each token was made of, if it is known."""
        found: Tensor | None = batch.gold
        return found

    def explain(self, batch: Any) -> AttentionMap:
        """The scored map: the weights of the site that aligns, while the decoder reads the given texts."""
        found = self.force_references(batch).weights
        if found is None:
            raise ConfigError("this model has no map of its source: its attention has no weights")
        support = DenseSupport.from_key_mask(self.places(batch))
        return AttentionMap(f"net.{self.net.align}", found.unsqueeze(1), support.axes, support, heads=(-1,))

    def predict_step(self, batch: Any, batch_idx: int = 0) -> dict[str, list[Any]]:
        """One column a key, one entry an example; the loss is that of a token, None where no text is given."""
        written = self.write(batch)
        losses: list[float | None] = [None] * len(batch)
        label = [""] * len(batch)
        if batch.targets is not None:
            totals = -self.force_references(batch).log_probability.double().sum(1)
            losses = (totals / batch.targets.lengths).tolist()
            label = [each[0] for each in batch.references]
        return {
            "id": list(batch.ids),
            "split": list(batch.splits),
            "label": label,
            "prediction": [texts[0] for texts in self.texts(batch, written)],
            "probability": [best.probability for best, *_ in written],
            "score": [best.score for best, *_ in written],
            "loss": losses,
        }

    predict_options: ClassVar[Sequence[CommandOption]] = WRITING_OPTIONS
    decoding_options: ClassVar[Sequence[CommandOption]] = SEARCH_OPTIONS

    @property
    def answer_column(self) -> str:
        return self.text_noun

    @property
    def reference_column(self) -> str:
        return "reference"

    def set_decoding(self, **how: Any) -> None:
        """Has evaluation and maps search as options of the command say."""
        self.writing = self.choose_writing(**how)

    def choose_writing(self, **how: Any) -> DecodingConfig:
        """Returns the way to write that the options of a command ask for.

        Raises:
            ConfigError: The options do not fit together, or this model does not know what it has covered.
        """
        if how.get("coverage_penalty") and not self.knows_coverage:
            raise ConfigError("--coverage-penalty: this model does not know what it has covered; leave it out")
        return choose_decoding(self.writing, **how)

    def predictor(self, **how: Any) -> Callable[[Any], dict[str, list[Any]]]:
        """`zoo predict`: the texts of each example."""
        writing = self.choose_writing(**how)
        return lambda batch: PredictionTable(batch, self.write(batch, writing), writing).columns(self.text_noun)

    def baselines(self, data: Any) -> Sequence[Baseline]:
        return compare_with_texts(data.texts, [(entry.score, entry.names) for entry in self.figures.scores])

    def protocol(self) -> str:
        scores = [entry.describe() for entry in self.figures.scores]
        return "; ".join([*scores, "references spelled by the model's tokeniser", self.writing.protocol()])

    def invariants(self, batch: Any) -> Sequence[Invariance]:
        """A text depends on its own source alone, and a step on those before it."""
        found = []
        targets = self.require_targets(batch)
        if len(batch) > 1:
            alone, steps = batch.select([0]), int(targets.lengths[0])
            others = f"other {self.source_noun}s of the batch and padding"
            found.append(Invariance(others, alone, lambda out: out[:1, :steps]))
        longest = targets.tokens.shape[1]
        if longest > 1:
            shorter = batch.replace_targets(Targets(targets.tokens[:, :-1], targets.lengths.clamp(max=longest - 1)))
            found.append(Invariance("later tokens", shorter, lambda out: out[:, : longest - 1]))
        return found

    def costs(self, batch: Any) -> Sequence[str]:
        """The share of padding in the batch, and that of the output layer in the parameters."""
        targets = self.require_targets(batch)
        real = int(batch.source.lengths.sum()) + int(targets.lengths.sum())
        places = batch.source.is_real.numel() + targets.tokens.numel()
        head, every = (sum(p.numel() for p in part.parameters()) for part in (self.net.head, self.net))
        return (
            f"padding: {1 - real / places:.0%} of {places:,} places of the batch",
            f"output layer: {head:,} of {every:,} parameters",
        )

    def gold_attention(self, batch: Any) -> Mapping[str, Tensor]:
        gold = self.gold(batch)
        return {} if gold is None or self.net.align is None else {f"net.{self.net.align}": gold}

    def query_masks(self, batch: Any) -> Mapping[str, Tensor]:
        """Places of the source in the encoder, steps of the text everywhere else."""
        source, target = self.places(batch), self.require_targets(batch).is_real
        return {site: source if _is_of_source(site) else target for site in sites(self)}

    def vocabularies(self) -> dict[str, dict[str, int]]:
        """Embeddings and the output layer are matched by the tokens of their language."""
        found = self.net.vocabularies().items()
        return {name: {f"net.{each}": axis for each, axis in parameters.items()} for name, parameters in found}

    def layer_groups(self) -> list[str]:
        return [f"net.{name}" for name, _ in self.net.named_children()]

    def _losses(self, batch: Any, targets: Targets, reduction: str) -> Tensor:
        """Returns the losses of all real tokens, or their sum."""
        logits, labels = self._logits_of_targets(batch, targets), targets.tokens[targets.is_real]
        return F.cross_entropy(logits, labels, label_smoothing=self.smoothing, reduction=reduction)

    def _rewards(
        self, reward: ReinforceLoss, batch: Any, maps: Recording, losses: Float[Tensor, " t"]
    ) -> Float[Tensor, ""]:
        """Returns what rewards of draws add to the sum of the losses."""
        is_real = self.require_targets(batch).is_real
        of_steps = losses.new_zeros(is_real.shape).masked_scatter(is_real, losses.detach())
        of_source = [site for site in maps if _is_of_source(site)]
        found: Tensor = reward(maps, of_steps, is_real, self.query_masks(batch), of_source)
        return found

    def _logits_of_targets(self, batch: Any, targets: Targets) -> Float[Tensor, "t vocabulary"]:
        share = 0.0 if self.scheduled is None else self.scheduled(self.global_step)
        if share > 0.0:
            return mix_predictions(self.net, batch.source, targets.read, share)[targets.is_real]
        logits: Tensor = self.net.head(self.net.features(batch.source, targets.read)[targets.is_real])
        return logits


def _is_of_source(site: str) -> bool:
    """Whether the queries of a site are places of the source."""
    return f"{site}.".startswith("net.encoder.")
