"""Translation: the loss of given translations, and figures of those that the model writes on its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn import functional as F

from zoo.attention import AttentionMap, DenseSupport, sites
from zoo.attention.ranges import Count, Rate
from zoo.decoding.beam import BeamSearch
from zoo.decoding.hypothesis import Hypothesis
from zoo.errors import ConfigError
from zoo.maps.source import MapOptions
from zoo.tasks.command_options import CommandOption
from zoo.tasks.contract import Invariance, Task
from zoo.tasks.generation.alignment import Forced, read_again
from zoo.tasks.generation.language import END
from zoo.tasks.generation.net import GeneratingNet
from zoo.tasks.generation.options import WRITING_OPTIONS, chosen
from zoo.tasks.generation.scheduled import ScheduledSampling, partly_free
from zoo.tasks.generation.scores import corpus_score
from zoo.tasks.generation.targets import Targets
from zoo.tasks.generation.writing import Longest, Writing
from zoo.tasks.translation.answers import answers
from zoo.tasks.translation.batch import Pairs
from zoo.tasks.translation.figures import Figures
from zoo.tasks.translation.maps.map_source import TranslationMaps
from zoo.text import BLEU, CHRF, ROUGE
from zoo.training import ranks
from zoo.training.optimisation import Optimisation

if TYPE_CHECKING:
    from zoo.tasks.translation.data.pair_data import PairData

_SEARCH, _LONGEST = BeamSearch(), Longest()


class Translator(Task):
    """Cross-entropy of the tokens of given translations; BLEU of those that the model writes on its own.

    In validation it writes by greedy search, in tests and predictions by `search`.

    Args:
        net: `(source_words, target_words) -> GeneratingNet`.
        optimisation: Optimiser, schedule, frozen layers and rates.
        source_words, target_words: From the data.
        smoothing: Of the targets in training: this share is spread evenly over all tokens (Szegedy et al. 2016).
        search: Beam search of tests and predictions.
        longest: Limit of the length of a translation.
        scheduled: Scheduled sampling in training. Default: the decoder reads the given translation.
        bleu_tokenize, lowercase: The tokeniser of sacreBLEU for the target language; whether scores ignore case.
        rouge: Whether tests compute ROUGE too, for summaries.
    """

    primary = "val/bleu"
    primary_mode = "max"
    headline = ("bleu", "chrf", "perplexity", "loss")

    def __init__(
        self,
        *,
        net: Callable[..., GeneratingNet],
        optimisation: Optimisation,
        source_words: Count,
        target_words: Count,
        smoothing: Rate = 0.1,
        search: BeamSearch = _SEARCH,
        longest: Longest = _LONGEST,
        scheduled: ScheduledSampling | None = None,
        bleu_tokenize: Literal["13a", "intl", "char", "zh", "none"] = "13a",
        lowercase: bool = False,
        rouge: bool = False,
    ) -> None:
        super().__init__(optimisation=optimisation)
        self.net = net(source_words=source_words, target_words=target_words)
        if search.ranking.coverage and (self.net.align is None or not hasattr(self.net, "covered")):
            raise ConfigError("model.search.ranking.coverage: this model does not know what it has covered; write 0")
        self.smoothing = smoothing
        self.writing = Writing(search, longest)
        self.scheduled = scheduled
        self.bleu, self.chrf = BLEU(tokenize=bleu_tokenize, lowercase=lowercase), CHRF(lowercase=lowercase)
        self.val_loss, self.val_bleu = ranks.MeanOfTargets(), corpus_score(self.bleu, "bleu")
        self.rouge = ROUGE() if rouge else None
        self.figures = Figures(self.bleu, self.chrf, self.rouge)
        self._by_length: list[dict[str, Any]] = []

    def forward(self, batch: Pairs) -> Float[Tensor, "b n vocabulary"]:
        """Returns the logits of every step, if the decoder reads the given translations."""
        return self.net.whole(batch.source, known(batch).read)

    def training_step(self, batch: Pairs, batch_idx: int) -> Tensor:
        targets = known(batch)
        logits = self._logits_of_targets(batch, targets)
        labels = targets.tokens[targets.is_real]
        total = F.cross_entropy(logits, labels, label_smoothing=self.smoothing, reduction="sum")
        loss = ranks.mean_loss(total, len(labels))
        self.log("train/loss", loss, on_step=True, on_epoch=False, batch_size=len(batch), sync_dist=ranks.world() > 1)
        return loss

    def validation_step(self, batch: Pairs, batch_idx: int) -> None:
        targets = known(batch)
        logits = self.net.head(self.net.features(batch.source, targets.read)[targets.is_real])
        self.val_loss.update(F.cross_entropy(logits, targets.tokens[targets.is_real], reduction="none"))
        written = self.translations(batch, self.writing.greedy())
        self.val_bleu.update(self.bleu.sums([texts[0] for texts in self._texts(batch, written)], references(batch)))
        metrics = {"val/loss": self.val_loss, "val/bleu": self.val_bleu}
        self.log_dict(metrics, on_step=False, on_epoch=True, batch_size=len(batch))

    def on_test_epoch_start(self) -> None:
        self.figures.reset()

    def test_step(self, batch: Pairs, batch_idx: int) -> None:
        """Every figure of a batch, whichever split it is of; `run` names them after it."""
        best = [each[0] for each in self.translations(batch)]
        self.figures.add(batch, best, self.forced(batch, best), self.forced_references(batch))

    def on_test_epoch_end(self) -> None:
        self.log_dict(self.figures.found())
        self._by_length = self.figures.by_length()  # here, where all processes are

    def tables(self) -> dict[str, list[dict[str, Any]]]:
        """BLEU by the length of the source, in the last split that was evaluated."""
        return {"bleu_by_length": self._by_length} if self._by_length else {}

    @torch.no_grad()
    def translations(self, batch: Pairs, writing: Writing | None = None) -> list[list[Hypothesis]]:
        """Returns the translations of each text, best first."""
        return (writing or self.writing)(self.net, batch.source, batch.ids)

    def forced(self, batch: Pairs, written: Sequence[Hypothesis]) -> Forced:
        """Lets the net read one translation of each text again, which the maps of translations come from."""
        return read_again(self.net, batch.source, [each.target(END) for each in written])

    def forced_references(self, batch: Pairs) -> Forced:
        """Lets the net read the given translations."""
        return read_again(self.net, batch.source, [[*text, END] for text in known(batch).texts()])

    def explain(self, batch: Pairs) -> AttentionMap:
        """The scored map: the weights of the site that aligns, while the decoder reads the given translations."""
        found = self.forced_references(batch).weights
        if found is None:
            raise ConfigError("this model has no map of its source: its attention has no weights")
        support = DenseSupport.from_key_mask(batch.source.is_real)
        return AttentionMap(f"net.{self.net.align}", found.unsqueeze(1), support.axes, support, heads=(-1,))

    def maps(self, data: PairData, options: MapOptions) -> TranslationMaps:
        return TranslationMaps(self, data, options)

    def predict_step(self, batch: Pairs, batch_idx: int = 0) -> dict[str, list[Any]]:
        """One column a key, one entry a text; the loss is that of a token, None where no translation is given."""
        written = self.translations(batch)
        losses: list[float | None] = [None] * len(batch)
        label = [""] * len(batch)
        if batch.targets is not None:
            totals = -self.forced_references(batch).log_probability.double().sum(1)
            losses = (totals / batch.targets.lengths).tolist()
            label = [each[0] for each in references(batch)]
        return {
            "id": list(batch.ids),
            "split": list(batch.splits),
            "label": label,
            "prediction": [texts[0] for texts in self._texts(batch, written)],
            "probability": [best.probability for best, *_ in written],
            "score": [best.score for best, *_ in written],
            "loss": losses,
        }

    predict_options = (
        *WRITING_OPTIONS,
        CommandOption(name="alignments", kind=None, help="which word each word was made of: 0-0 1-2, source first"),
        CommandOption(name="replace-unknown", kind=None, help="unknown words become the source word attended to most"),
    )

    def predictor(
        self, *, alignments: bool = False, replace_unknown: bool = False, **how: Any
    ) -> Callable[[Any], dict[str, list[Any]]]:
        """`zoo predict`: the translations of each text."""
        writing = chosen(self.writing, **how)
        asked = [name for name, is_on in (("alignments", alignments), ("replace-unknown", replace_unknown)) if is_on]
        if asked and self.net.align is None:
            raise ConfigError(f"--{asked[0]}: this model has no attention to its source")
        return lambda batch: answers(self, batch, writing, alignments=alignments, replace_unknown=replace_unknown)

    def protocol(self) -> str:
        search = self.writing.search
        assert isinstance(search, BeamSearch)
        ranking = search.ranking
        parts = [f"beam {search.width}", f"length {ranking.length}", f"coverage {ranking.coverage:g}"]
        constraints = search.constraints
        parts += [f"shortest {constraints.shortest}"] * bool(constraints.shortest)
        parts += [f"no {constraints.unrepeated} tokens twice"] * (constraints.unrepeated is not None)
        limit = self.writing.longest
        parts.append(f"at most {limit.factor:g} x source + {limit.constant} tokens")
        scores = [f"BLEU {self.bleu.signature()}", f"chrF {self.chrf.signature()}"]
        scores += [] if self.rouge is None else [self.rouge.signature()]
        return "; ".join([*scores, ", ".join(parts)])

    def invariants(self, batch: Pairs) -> Sequence[Invariance]:
        """A translation depends on its own source alone, and a step on those before it."""
        found = []
        targets = known(batch)
        if len(batch) > 1:
            alone, steps = batch.some([0]), int(targets.lengths[0])
            found.append(Invariance("other texts of the batch and padding", alone, lambda out: out[:1, :steps]))
        longest = targets.tokens.shape[1]
        if longest > 1:
            shorter = batch.with_targets(Targets(targets.tokens[:, :-1], targets.lengths.clamp(max=longest - 1)))
            found.append(Invariance("later tokens", shorter, lambda out: out[:, : longest - 1]))
        return found

    def costs(self, batch: Pairs) -> Sequence[str]:
        """The share of padding in the batch, and that of the output layer in the parameters."""
        real = int(batch.source.lengths.sum()) + int(known(batch).lengths.sum())
        places = batch.source.tokens.numel() + known(batch).tokens.numel()
        head, every = (sum(p.numel() for p in part.parameters()) for part in (self.net.head, self.net))
        return (
            f"padding: {1 - real / places:.0%} of {places:,} tokens of the batch",
            f"output layer: {head:,} of {every:,} parameters",
        )

    def gold_attention(self, batch: Pairs) -> Mapping[str, Tensor]:
        return {} if batch.gold is None or self.net.align is None else {f"net.{self.net.align}": batch.gold}

    def real_queries(self, batch: Pairs) -> Mapping[str, Tensor]:
        """Places of the source in the encoder, steps of the translation everywhere else."""
        encoder = "net.encoder."
        source, target = batch.source.is_real, known(batch).is_real
        return {site: source if f"{site}.".startswith(encoder) else target for site in sites(self)}

    def vocabularies(self) -> dict[str, dict[str, int]]:
        """Embeddings and the output layer are matched by the tokens of their language."""
        found = self.net.vocabularies().items()
        return {name: {f"net.{each}": axis for each, axis in parameters.items()} for name, parameters in found}

    def stages(self) -> list[str]:
        return [f"net.{name}" for name, _ in self.net.named_children()]

    def _logits_of_targets(self, batch: Pairs, targets: Targets) -> Float[Tensor, "t vocabulary"]:
        share = 0.0 if self.scheduled is None else self.scheduled(self.global_step)
        if share > 0.0:
            return partly_free(self.net, batch.source, targets.read, share)[targets.is_real]
        logits: Tensor = self.net.head(self.net.features(batch.source, targets.read)[targets.is_real])
        return logits

    def _texts(self, batch: Pairs, written: Sequence[Sequence[Hypothesis]]) -> list[list[str]]:
        assert batch.languages is not None
        language = batch.languages.target
        return [[language.text(each.tokens) for each in hypotheses] for hypotheses in written]


def known(batch: Pairs) -> Targets:
    """Returns the given translations of a batch."""
    if batch.targets is None:
        raise ConfigError("a text has no translation, which training and evaluation need; give one for each text")
    return batch.targets


def references(batch: Pairs) -> list[Sequence[str]]:
    """Returns the given translations of each text as people wrote them."""
    assert batch.written is not None
    return [each.references for each in batch.written]
