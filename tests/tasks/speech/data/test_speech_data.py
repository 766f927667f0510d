"""Batches of recordings: features, targets, gold, augmentation, what a checkpoint keeps."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch

from zoo.tasks.speech import Augmentation, Features, SpeechData, planted_tones
from zoo.tasks.speech.datamodule import times_of_tokens
from zoo.text import Characters, Words
from zoo.validation import validate

SMALL = {"utterances": 12, "held_out": 4, "longest": 6, "max_epochs": 1, "batch_size": 4}


def small(**options: Any) -> SpeechData:
    data: SpeechData = planted_tones(**{**SMALL, **options})
    return data


def test_a_batch_has_features_targets_and_gold() -> None:
    data = small()
    recordings = len(data.content.corpus.numbers("train"))
    assert data.sizes() == {
        "features": 40,
        "tokens": len(data.content.language),
        "recordings": recordings,
        "word_tokens": 0,
    }
    for batch in data.loader("test"):
        for number in range(len(batch)):
            text = batch.written[number].references[0]
            length, tokens = int(batch.source.lengths[number]), int(batch.targets.lengths[number])
            assert batch.language.text(batch.targets.texts()[number]) == text
            assert tokens == len(text) + 1
            gold = batch.gold[number, : tokens - 1]
            assert [int(end) > int(start) for start, end in gold] == [letter != " " for letter in text]
            assert int(gold.max()) <= length
            assert 5 <= batch.written[number].snr <= 30
            np.testing.assert_allclose(batch.source.features[number, :length].mean(0), 0, atol=1e-4)


@pytest.mark.parametrize("tokeniser", ["characters", "subwords"])
def test_a_closing_space_ends_the_last_word_and_stands_in_no_text(tokeniser: Any) -> None:
    open_ended, data = small(tokeniser=tokeniser), small(tokeniser=tokeniser, closing_space=True)
    plain, batch = (next(iter(each.loader("test"))) for each in (open_ended, data))
    for number, (written, known) in enumerate(zip(batch.written, batch.targets.texts(), strict=True)):
        assert written.references == plain.written[number].references
        assert batch.language.text(known) == written.references[0]
        assert batch.language.vocabulary.tokens[known[-1]].endswith(" " if tokeniser == "characters" else "Ġ")
        if tokeniser == "characters":
            assert "".join(batch.language.vocabulary.tokens[each] for each in known) == f"{written.references[0]} "
        start, end = batch.gold[number, len(known) - 1].tolist()
        assert end <= start  # it has no sound


def test_words_are_tokens_with_the_times_of_their_letters() -> None:
    data = small(tokeniser="words")
    with pytest.warns(UserWarning, match="transcripts of val and test have what train lacks"):
        data.setup()
    batch = next(iter(data.loader("test")))
    text = batch.written[0].references[0]
    times = data.content.corpus.times[data.content.corpus.ids.index(batch.ids[0])]
    words, place = text.split(), 0
    for number, word in enumerate(words):
        wanted = Features().frames(times[[place, place + len(word) - 1]], 10**6)
        assert batch.gold[0, number].tolist() == [wanted[0, 0], wanted[1, 1]]
        place += len(word) + 1


def test_tokens_without_sound_have_no_time() -> None:
    times = np.array([[0.0, 0.1], [0.1, 0.1], [0.4, 0.6]])
    characters = times_of_tokens(times, Characters().encode("a b"))
    assert characters.tolist() == times.tolist()
    assert times_of_tokens(times[:2], Words().encode("a ")).tolist() == [[0.0, 0.1]]
    closed = times_of_tokens(times, Characters().encode("a b "))
    assert closed.tolist() == [*times.tolist(), [0.6, 0.6]]


def test_batches_are_limited_by_their_frames() -> None:
    data = small(utterances=40, batch_size=None, max_frames=600)
    sizes = [batch.source.features.shape[:2] for batch in data.train_dataloader()]
    assert all(count * frames <= 600 for count, frames in sizes)
    assert sum(count for count, _ in sizes) == 40


AUGMENTED = Augmentation(frequency_masks=2, time_masks=2, speeds=[0.9, 1.0, 1.1])


def test_augmentation_depends_on_seed_epoch_and_example() -> None:
    def epochs(seed: int) -> list[dict[str, torch.Tensor]]:
        data = small(augmentation=AUGMENTED)
        data.order_seed = seed
        loader, found = data.train_dataloader(), []
        for _ in range(2):
            found.append({id: x for batch in loader for id, x in zip(batch.ids, batch.source.features, strict=True)})
        return found

    def same(one: torch.Tensor, other: torch.Tensor) -> bool:
        return one.shape == other.shape and torch.equal(one, other)

    first, again, other = epochs(0), epochs(0), epochs(1)
    for one, two in zip(first, again, strict=True):
        assert all(same(one[id], two[id]) for id in one)
    assert not any(same(first[0][id], first[1][id]) for id in first[0])
    assert not any(same(first[0][id], other[0][id]) for id in first[0])


def test_masks_are_as_wide_as_allowed() -> None:
    x = torch.randn(50, 40)
    masked = Augmentation(time_masks=1, time_width=100, time_share=0.2).mask(x)
    assert 0 <= int((masked != x).any(1).sum()) <= 10
    masked = Augmentation(frequency_masks=1, frequency_width=5).mask(x)
    assert int((masked != x).any(0).sum()) <= 5
    assert torch.equal(Augmentation().mask(x), x)
    for _ in range(20):
        Augmentation(frequency_masks=1, frequency_width=500, time_masks=3).mask(torch.randn(1, 13))


def test_gold_follows_the_speed() -> None:
    data = small(augmentation=Augmentation(speeds=[0.8]))
    plain = {
        id: (x, gold)
        for b in small().loader("train")
        for id, x, gold in zip(b.ids, b.source.lengths, b.gold, strict=True)
    }
    for batch in data.train_dataloader():
        for id, length, gold in zip(batch.ids, batch.source.lengths, batch.gold, strict=True):
            was, old = plain[id]
            assert abs(int(length) - int(was) / 0.8) <= 1
            assert abs(int(gold.max()) - int(old.max()) / 0.8) <= 1


def test_validation_is_not_augmented() -> None:
    ours, plain = (next(iter(each.loader("train"))) for each in (small(augmentation=AUGMENTED), small()))
    assert torch.equal(ours.source.features, plain.source.features)


@pytest.mark.parametrize("normalise", ["utterance", "global"])
def test_a_checkpoint_restores_features_and_vocabulary(normalise: Any) -> None:
    trained = small(features=Features(normalise=normalise, mels=20))
    state = trained.state()
    validate(state, SpeechData.form, "data")
    other = small(seed=5)
    other.restore(state)
    assert other.sizes() == trained.sizes()
    assert other.state() == state


def test_fine_tuning_keeps_features_and_learns_letters() -> None:
    state = small(features=Features(normalise="global", mels=20), letters=5).state()
    other = small(letters=9)
    other.inherit_from_checkpoint(state)
    assert other.sizes()["features"] == 20
    assert other.state()["features"] == state["features"]
    assert len(other.state()["target_tokens"]) > len(state["target_tokens"])
    anew = small(letters=9, kept_features=False)
    anew.inherit_from_checkpoint(state)
    assert anew.sizes()["features"] == 40
