"""What was read of pictures and captions, and the examples that batches are made of."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Int, UInt8
from torch import Tensor

from zoo.data.ragged import RaggedArray
from zoo.data.splits import NONE, SPLITS
from zoo.nn.images.image_input import OriginalImage
from zoo.tasks.captioning.batch import CaptionExample, WrittenPicture
from zoo.tasks.captioning.data.caption_set import CaptionSet
from zoo.tasks.captioning.data.features import Features
from zoo.tasks.seq2seq.text_codec import TextCodec
from zoo.tasks.vision.batch import Picture
from zoo.tasks.vision.data.transforms import Augmentation, Preprocessing
from zoo.text.tokens import tokens_of_words


@dataclass(frozen=True, eq=False)
class Content:
    """What was read.

    Args:
        pictures: The pictures and their captions.
        language: The language of the captions.
        tokens: The tokens of each caption, without the end; those of a picture follow each other. None: not known.
        ends: The end of each picture's captions in `tokens`, after a 0.
    """

    pictures: CaptionSet
    language: TextCodec
    tokens: RaggedArray | None
    ends: Int[np.ndarray, " n"]


class Entries(Sequence[CaptionExample]):
    """Some pictures, each with one of its captions, preprocessed on access.

    Args:
        content: What was read.
        rows: The picture of each entry and its caption.
        preprocessing: Brings pictures to the size of the net's input. None: pixels are those of the picture itself.
        features: Features of all pictures, which entries have instead of pixels.
        written: Whether entries have what people know of them.
    """

    def __init__(
        self,
        content: Content,
        rows: Int[np.ndarray, "e 2"],
        preprocessing: Preprocessing | None,
        features: Features | None,
        *,
        written: bool,
    ) -> None:
        self.content = content
        self.rows = rows
        self.preprocessing = preprocessing
        self.features = features
        self.written = written

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: Any) -> Any:
        content = self.content
        pictures = content.pictures
        number, caption = self.rows[place].tolist()
        split = int(pictures.splits[number])
        name = SPLITS[split] if split != NONE else ""
        pixels, size = self._pixels(number, name) if self.features is None else (None, self.features.size(number))
        references = [] if pictures.captions is None else pictures.captions[number]
        return CaptionExample(
            pixels=pixels,
            features=None if self.features is None else self.features[number],
            target=None if content.tokens is None else content.tokens[caption],
            id=pictures.ids[number],
            split=name,
            regions=self._regions(number, caption, size),
            written=WrittenPicture(references, size, self._original(number, size)) if self.written else None,
        )

    def _pixels(self, number: int, split: str) -> tuple[UInt8[Tensor, "3 h w"], tuple[int, int]]:
        """Returns the pixels that the net reads, or that are augmented, and the size of the picture itself."""
        pictures = self.content.pictures
        own = Picture(torch.as_tensor(pictures.pixels[number]), -1, pictures.ids[number], split)
        size = own.pixels.shape[1], own.pixels.shape[2]
        return own.pixels if self.preprocessing is None else self.preprocessing(own).pixels, size

    def _original(self, number: int, size: tuple[int, int]) -> OriginalImage:
        """Returns the picture itself; one that is augmented counts as seen as a whole."""
        whole = (0.0, 0.0, float(size[0]), float(size[1]))
        seen = whole if self.preprocessing is None else self.preprocessing.find_crop(*size)
        return OriginalImage(self.content.pictures.pixels, number, seen)

    def _regions(self, number: int, caption: int, size: tuple[int, int]) -> Float[Tensor, "n 4"] | None:
        """The boxes of a caption's tokens, as shares of what the net sees."""
        pictures = self.content.pictures
        if (
            self.preprocessing is None
            or pictures.regions is None
            or pictures.captions is None
            or caption != self.content.ends[number]
        ):
            return None
        text = pictures.captions[number][0]
        tokens = self.content.language.tokeniser.encode(text)
        boxes = np.zeros((max(1, len(tokens)), 4), dtype=np.float32)
        for box, of in zip(pictures.regions[number], tokens_of_words(text, tokens), strict=True):
            boxes[list(of)] = box
        return torch.from_numpy(self.preprocessing.shares(boxes, *size))


def augment(example: CaptionExample, augmentation: Augmentation, to: Preprocessing) -> CaptionExample:
    """Changes the picture of an example at random, whose gold would stay behind and is not known then."""
    assert example.pixels is not None
    changed = augmentation(Picture(example.pixels, -1, example.id, example.split), to)
    return replace(example, pixels=changed.pixels)
