"""Speech recognition: the loss of given transcripts, and error rates of those that the model writes on its own."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, cast

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from zoo import distributed
from zoo.attention import AttentionMap, GuidanceCrossEntropy, NoStopPenalty, record
from zoo.decoding.beam import BeamSearch
from zoo.decoding.hypothesis import Hypothesis
from zoo.decoding.sampling import Sampling
from zoo.errors import ConfigError, DataError, count_noun
from zoo.nn.seq2seq.model import Seq2SeqModel
from zoo.optim import OptimizerConfig
from zoo.tasks.seq2seq.alignment_diagnostics import AlignmentCollapseMonitor
from zoo.tasks.seq2seq.decoding_config import DecodingConfig, MaxLength
from zoo.tasks.seq2seq.decoding_options import WRITING_OPTIONS
from zoo.tasks.seq2seq.scheduled_sampling import ScheduledSampling
from zoo.tasks.seq2seq.targets import Targets, real
from zoo.tasks.seq2seq.task import DEFAULT_SEARCH, Seq2SeqTask
from zoo.tasks.seq2seq.text_codec import END
from zoo.tasks.speech.metrics import SpeechMetrics
from zoo.tasks.speech.models.ctc import JointDecoder, count_needed, places_of
from zoo.tasks.speech.models.ctc_prefixes import CTCOutput
from zoo.tasks.speech.models.ragged import shorten_lengths
from zoo.tasks.speech.predictions import TIME_OPTIONS, answers, write_times
from zoo.tasks.speech.small_data import CTC_OF_FEW, FEW_RECORDINGS, choose_ctc
from zoo.tasks.speech.streaming_decoder import STREAM, stream_rows
from zoo.text import CER, WER
from zoo.types import NonNegativeFloat, NonNegativeInt, PositiveInt, Probability, validate_ranges

if TYPE_CHECKING:
    from zoo.maps.explainer import MapOptions
    from zoo.tasks.speech.datamodule import SpeechData
    from zoo.tasks.speech.explanation import SpeechExplainer

DEFAULT_LONGEST = MaxLength(factor=0.25, constant=10)
"""Of frames of 10 ms: 25 tokens a second, and 10."""


_HIGH_ERROR = 0.2


@validate_ranges
class Recogniser(Seq2SeqTask):
    """Cross-entropy of the tokens of given transcripts; the error rates of those that the model writes on its own.

    The best weights are those of the lowest character error rate in validation.

    Args:
        net: `(features, tokens) -> Seq2SeqModel` with `stride`, the number of frames of a place that it attends to.
        optimization: Optimizer, schedule, frozen layers and rates.
        features, tokens: From the data: width of a frame, and size of the vocabulary.
        recordings: From the data: number of training recordings, up to `FEW_RECORDINGS`.
        word_tokens: From the data: 1 if tokens are words, 0 if words are spelled.
        smoothing, search, scheduled: See `Seq2SeqTask`.
        longest: Limit of the number of tokens of a transcript, by the number of frames of its recording.
        ctc: Share of the loss that is the loss of a CTC branch of the listener (Watanabe et al. 2017, eq. 13). With 0
            there is no branch. Default: `choose_ctc` of the number of recordings and their tokens.
        guidance: Weight of the cross-entropy of attention with the most probable path of the CTC branch (Inaguma et al.
            2020, CTC-synchronous training; the cross-entropy is that of `GuidanceCrossEntropy`): each token is to be
            attended to where the branch has it last; attention that moves forwards is to stop there, and to pass all
            places at the end of a text. A text then ends where it passes all places, and nowhere else. It is multiplied
            by the mean probability of a token on that path. With 0 attention is not guided.
        joint: Weight of the CTC branch in a search: see `JointDecoder`. With 0 the speller searches alone.
    """

    primary = "val/cer"
    primary_mode = "min"
    primary_worst = 1.0
    headline = ("cer", "wer", "perplexity", "loss")
    source_noun, text_noun = "recording", "transcript"
    optional_parts: ClassVar[Sequence[str]] = (*Seq2SeqTask.optional_parts, "net.ctc")

    def __init__(
        self,
        *,
        net: Callable[..., Seq2SeqModel],
        optimization: OptimizerConfig,
        features: PositiveInt,
        tokens: PositiveInt,
        recordings: NonNegativeInt | None = None,
        word_tokens: NonNegativeInt = 0,
        smoothing: Probability = 0.1,
        search: BeamSearch = DEFAULT_SEARCH,
        longest: MaxLength = DEFAULT_LONGEST,
        scheduled: ScheduledSampling | None = None,
        ctc: Probability | None = None,
        guidance: NonNegativeFloat = 0.0,
        joint: Probability = 0.0,
    ) -> None:
        self._chooses_ctc = ctc is None
        ctc = choose_ctc(recordings, words=bool(word_tokens)) if ctc is None else ctc
        for name, value in {"joint": joint, "guidance": guidance}.items():
            if value and not ctc:
                raise ConfigError(f"model.{name}={value} needs a CTC branch: write model.ctc=0.3 too, which trains one")
        made: Any = net(features=features, tokens=tokens, **({"ctc": True} if ctc else {}))
        super().__init__(
            net=made,
            optimization=optimization,
            validated=["wer", "cer"],
            figures=SpeechMetrics(WER(), CER(), made.stride),
            smoothing=smoothing,
            search=search,
            longest=longest,
            scheduled=scheduled,
        )
        self.stride: int = made.stride
        self.ctc, self.guidance, self.joint = ctc, guidance, joint
        if guidance and made.align is None:
            raise ConfigError(f"model.guidance={guidance}: this model has no attention with weights to guide")
        self.collapse = None
        if made.align is not None:
            site = made.get_submodule(made.align)
            self.collapse = AlignmentCollapseMonitor(f"net.{made.align}", compares=site.is_content_based)
            # guidance trains queries of ends to pass all places
            site.stops_at_end = bool(guidance) and type(site.normalizer).traits.streaming

    def begin(self, data: SpeechData) -> None:
        if self._chooses_ctc and self.ctc and distributed.is_rank_zero():
            recordings = count_noun(data.train_size(), "training recording")
            said = f"{recordings} are few, and model.ctc is {self.ctc}: it helps attention to align. 0 leaves it out."
            print(f"zoo: {said}", file=sys.stderr)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        if not self.ctc:
            return super().training_step(batch, batch_idx)
        targets, net = self.require_targets(batch), cast(Any, self.net)
        encoded = net.encode(batch.source)
        places = places_of(encoded)
        if (count_needed(targets) > places).any():
            raise DataError(_too_long(batch, count_needed(targets), places))
        site = [f"net.{self.net.align}"]
        recorded: AbstractContextManager[Any] = (
            record(self, layers=site, grad=True) if self.guidance else nullcontext({})
        )
        with recorded as maps:
            spelled = super().training_step(replace(batch, source=encoded), batch_idx)
        heard = net.ctc(encoded)
        losses = net.ctc.loss(heard, targets)
        loss = distributed.mean_loss(losses.sum(), int(targets.lengths.sum()))
        self.log_training({"train/ctc": loss}, len(batch))
        both = (1.0 - self.ctc) * spelled + self.ctc * loss
        for found in maps.values():
            both = both + self.guidance * self._guidance(found, heard, targets)
        return both

    def _guidance(self, found: AttentionMap, heard: CTCOutput, targets: Targets) -> Tensor:
        """Returns the cross-entropy of attention with the path of the CTC branch: the mean over tokens.

        Of attention that moves forwards, the mean over ends is added, which would be lost among those of the tokens. A
        branch that knows nothing yet does not guide: all is multiplied by the mean probability of a token on the path.
        """
        stops = cast(Any, self.net).ctc.stops(heard, targets)
        if found.alignment is not None:  # where attention that moves forwards stops
            found = replace(found, weights=found.alignment, alignment=None)
        of_tokens = GuidanceCrossEntropy()(found, stops > 0, targets.is_real)
        mean = distributed.mean_loss(of_tokens.total, of_tokens.count)
        if self.get_submodule(found.site).stops_at_end:
            of_ends = NoStopPenalty()(found, targets.tokens == END)
            mean = mean + distributed.mean_loss(of_ends.total, of_ends.count)
        mean = mean * distributed.mean_loss(stops.sum(), of_tokens.count)
        self.log_training({"train/guidance": mean.detach()}, len(targets))
        return mean

    def validation_step(self, batch: Any, batch_idx: int) -> None:
        super().validation_step(batch, batch_idx)
        if self.collapse is None:
            return
        # one batch is enough to see a collapse
        weights = self.force_references(batch).weights if batch_idx == 0 else None
        if weights is not None:
            self.collapse.update(weights, self.require_targets(batch).is_real, self.places(batch))
        self.log_evaluation(self.collapse.to_log(), len(batch))

    def on_validation_epoch_end(self) -> None:
        if self.collapse is not None:
            self.collapse.notice()

    @torch.no_grad()
    def write(self, batch: Any, writing: DecodingConfig | None = None) -> list[list[Hypothesis]]:
        writing = writing or self.writing
        if not self.joint or isinstance(writing.search, Sampling):
            return super().write(batch, writing)
        return writing(JointDecoder(self.net, self.joint), batch.source, batch.ids)

    def verdicts(self, metrics: Mapping[str, Any], examples: int) -> Sequence[str]:
        found = list(super().verdicts(metrics, examples))
        if self.collapse is not None and not self.ctc:
            found += [f"{said} Or train with model.ctc={CTC_OF_FEW}" for said in self.collapse.verdicts(metrics)]
        error = metrics.get("test/cer", 0.0)
        if error >= _HIGH_ERROR and examples < FEW_RECORDINGS:
            found.append(
                f"{count_noun(examples, 'training recording')} are few, and test/cer is {error:.2f}: take more steps "
                "(data.batch_size=4 data.max_epochs=60), transcribe more, draw their speed anew in each epoch "
                "(data.augmentation.speeds=[0.9,1.0,1.1]), or start from a trained model (init=CKPT)"
            )
        return found

    def protocol(self) -> str:
        return f"{super().protocol()}{f', CTC {self.joint:g}' if self.joint else ''}"

    def places(self, batch: Any) -> Bool[Tensor, "b k"]:
        """Returns the mask of the places that the listener makes of the frames."""
        lengths = shorten_lengths(batch.source.lengths, self.stride)
        return real(lengths, int(lengths.max()) if len(lengths) else 0)

    def gold(self, batch: Any) -> Bool[Tensor, "b n k"] | None:
        """Returns the mask of the places in which each token was spoken, if it is known."""
        found: Tensor | None = batch.gold_places(self.stride, self.places(batch).shape[1])
        return found

    def maps(self, data: SpeechData, options: MapOptions) -> SpeechExplainer:
        from zoo.tasks.speech.explanation import SpeechExplainer

        return SpeechExplainer(self, data, options)

    predict_options = (*WRITING_OPTIONS, *TIME_OPTIONS, STREAM)

    def stream_predictions(self, stream: str | None = None, **others: Any) -> Iterator[dict[str, Any]] | None:
        """`zoo predict --stream`: the tokens of a recording while it arrives."""
        return None if stream is None else stream_rows(self, stream, others)

    def predictor(
        self, *, times: bool = False, times_out: Path | None = None, **how: Any
    ) -> Callable[[Any], dict[str, list[Any]]]:
        """`zoo predict`: the transcripts of each recording."""
        writing, timed = self.choose_writing(**how), times or times_out is not None
        if timed and self.net.align is None:
            raise ConfigError(f"--times{'' if times else '-out'}: this model has no attention, which times come from")
        return lambda batch: answers(self, batch, writing, timed=timed)

    def write_sidecars(
        self,
        examples: Iterator[list[dict[str, Any]]],
        *,
        times: bool = False,
        times_out: Path | None = None,
        **how: Any,
    ) -> Iterator[list[dict[str, Any]]]:
        """Writes the times of transcripts, in a column or to files."""
        return write_times(examples, times=times, path=times_out) if times or times_out is not None else examples


def _too_long(batch: Any, needed: Int[Tensor, " b"], places: Int[Tensor, " b"]) -> str:
    rows = zip(batch.ids, needed.tolist(), places.tolist(), strict=True)
    name, tokens, there = next(row for row in rows if row[1] > row[2])
    return (
        f"the transcript of {name} needs {tokens} places of the listener (one a token, and one between equal "
        f"neighbours), and its recording makes {there}: CTC cannot align them. Leave it out, join fewer frames to a "
        "place, or write model.ctc=0"
    )
