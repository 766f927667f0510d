"""Translation: the loss of given translations, and figures of those that the model writes on its own."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from zoo.decoding.beam import BeamSearch
from zoo.errors import ConfigError
from zoo.nn.seq2seq.model import Seq2SeqModel
from zoo.optim import OptimizerConfig
from zoo.tasks.command_options import CommandOption
from zoo.tasks.seq2seq.decoding_config import MaxLength
from zoo.tasks.seq2seq.decoding_options import WRITING_OPTIONS
from zoo.tasks.seq2seq.metrics import CorpusScore
from zoo.tasks.seq2seq.reinforce import ReinforceLoss
from zoo.tasks.seq2seq.scheduled_sampling import ScheduledSampling
from zoo.tasks.seq2seq.task import DEFAULT_LONGEST, DEFAULT_SEARCH, Seq2SeqTask
from zoo.tasks.translation.metrics import TranslationMetrics
from zoo.tasks.translation.predictions import answers
from zoo.text import BLEU, CHRF, ROUGE
from zoo.types import PositiveInt, Probability, validate_ranges

if TYPE_CHECKING:
    from zoo.maps.explainer import MapOptions
    from zoo.tasks.translation.datamodule import PairData
    from zoo.tasks.translation.explanation import TranslationExplainer


@validate_ranges
class Translator(Seq2SeqTask):
    """Cross-entropy of the tokens of given translations; BLEU of those that the model writes on its own.

    Args:
        net: `(source_words, target_words) -> Seq2SeqModel`.
        optimization: Optimizer, schedule, frozen layers and rates.
        source_words, target_words: From the data.
        smoothing, search, longest, scheduled, reward: See `Seq2SeqTask`.
        bleu_tokenize, lowercase: The tokeniser of sacreBLEU for the target language; whether scores ignore case.
        rouge: Whether tests compute ROUGE too, for summaries.
    """

    primary = "val/bleu"
    primary_mode = "max"
    primary_worst = 0.0
    headline = ("bleu", "chrf", "perplexity", "loss")
    source_noun, text_noun = "text", "translation"

    def __init__(
        self,
        *,
        net: Callable[..., Seq2SeqModel],
        optimization: OptimizerConfig,
        source_words: PositiveInt,
        target_words: PositiveInt,
        smoothing: Probability = 0.1,
        search: BeamSearch = DEFAULT_SEARCH,
        longest: MaxLength = DEFAULT_LONGEST,
        scheduled: ScheduledSampling | None = None,
        reward: Callable[[], ReinforceLoss] = ReinforceLoss,
        bleu_tokenize: Literal["13a", "intl", "char", "zh", "none"] = "13a",
        lowercase: bool = False,
        rouge: bool = False,
    ) -> None:
        scores = [
            CorpusScore(BLEU(tokenize=bleu_tokenize, lowercase=lowercase), ["bleu"], "BLEU"),
            CorpusScore(CHRF(lowercase=lowercase), ["chrf"], "chrF"),
        ]
        if rouge:
            scores.append(CorpusScore(ROUGE(), ["rouge_1", "rouge_2", "rouge_l"]))
        super().__init__(
            net=net(source_words=source_words, target_words=target_words),
            optimization=optimization,
            validated=["bleu"],
            figures=TranslationMetrics(scores),
            smoothing=smoothing,
            search=search,
            longest=longest,
            scheduled=scheduled,
            reward=reward,
        )

    def maps(self, data: PairData, options: MapOptions) -> TranslationExplainer:
        from zoo.tasks.translation.explanation import TranslationExplainer

        return TranslationExplainer(self, data, options)

    predict_options = (
        *WRITING_OPTIONS,
        CommandOption(name="alignments", kind=None, help="which word each word was made of: 0-0 1-2, source first"),
        CommandOption(name="replace-unknown", kind=None, help="unknown words become the source word attended to most"),
    )

    def predictor(
        self, *, alignments: bool = False, replace_unknown: bool = False, **how: Any
    ) -> Callable[[Any], dict[str, list[Any]]]:
        """`zoo predict`: the translations of each text."""
        writing = self.choose_writing(**how)
        asked = [name for name, is_on in (("alignments", alignments), ("replace-unknown", replace_unknown)) if is_on]
        if asked and self.net.align is None:
            raise ConfigError(f"--{asked[0]}: this model has no attention to its source")
        return lambda batch: answers(self, batch, writing, alignments=alignments, replace_unknown=replace_unknown)

    def protocol(self) -> str:
        return "; ".join([*(entry.describe() for entry in self.figures.scores), self.writing.protocol()])
