"""One picture file -> pixels of 8 bits, upright, grey or red-green-blue; or one sentence on why it cannot be read."""

from __future__ import annotations

import os
import stat
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from zoo.data.tables import message
from zoo.errors import DataError

Channels = Literal[1, 3]

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF", "PPM")
"""PIL's names. It knows many more, some of which start other programs (EPS)."""
_SUFFIXES = ".jpg .jpeg .jpe .jfif .png .apng .webp .bmp .dib .tif .tiff .gif .ppm .pgm .pbm .pnm .pfm"
SUFFIXES = frozenset(_SUFFIXES.split())
"""How the names of such files end, in whatever letter case."""
MOST_PIXELS = 100_000_000
"""Of one picture: 300 MB in red, green and blue. A file of a few kB can claim as many as it likes."""

_READABLE = "JPEG, PNG, WebP, BMP, TIFF, GIF and PPM are read"
_REMEDY = "Save it anew, or take it away."


class PictureError(DataError):
    """One picture cannot be read. `what` and `remedy` are the parts of the message without the name of the file."""

    what: str = ""
    remedy: str = ""


class Header(NamedTuple):
    """What a file says of its picture, before any of it is decoded."""

    format: str
    height: int
    width: int
    """As stored; EXIF may say that it is to be turned."""
    frames: bool
    """Whether it has more than one picture, of which the first is read."""


def read_picture(
    path: Path | str, *, channels: Channels, at_least: int | None = None, most_pixels: int = MOST_PIXELS
) -> UInt8[Tensor, "c h w"]:
    """Reads the first picture of a file and turns it as its EXIF data say.

    - Transparent pixels lie over white.
    - 16 bits become 8 by a division by 257, rounded (PIL itself drops the lower byte of 16-bit colour).
    - 32-bit values are taken as from 0 to 1 if none is above 1 (floating point), else to 255 or to 65535, the first
      that holds them all; others are an error.
    - Grey is 0.299 red + 0.587 green + 0.114 blue. Colour profiles are not applied.

    Args:
        path: A JPEG, PNG, WebP, BMP, TIFF, GIF or PPM, whatever its name ends in.
        channels: 1: grey; 3: red, green, blue.
        at_least: A JPEG may be decoded at 1/2, 1/4 or 1/8 of its size, as long as both sides keep so many pixels.
        most_pixels: A larger picture is an error, which is found before it is decoded.

    Raises:
        PictureError: which file, what is wrong with it, and how to mend it.
    """
    if channels not in (1, 3):
        raise ValueError(f"channels={channels!r}: a picture has 1 (grey) or 3 (red, green, blue)")
    path = Path(path)
    with _opened(path, most_pixels) as image:
        if at_least is not None:
            image.draft(None, (at_least, at_least))
        with _decoding(path):
            image.load()
        kind = image.format
        with _decoding(path):
            plain = _plain(_upright(image), kind, path)
            pixels = np.array(plain.convert("L" if channels == 1 else "RGB"))
    return torch.from_numpy(pixels.reshape(*pixels.shape[:2], channels)).permute(2, 0, 1)


def look(path: Path | str, *, most_pixels: int = MOST_PIXELS) -> Header:
    """What the beginning of a file says; the pixels are not decoded and may be damaged all the same."""
    path = Path(path)
    with _opened(path, most_pixels) as image:
        with _decoding(path):
            frames = bool(getattr(image, "is_animated", False))
        return Header(str(image.format), image.height, image.width, frames)


@contextmanager
def _opened(path: Path, most_pixels: int) -> Iterator[Image.Image]:
    """The picture, not decoded. PIL's warnings, of which most concern EXIF data, are kept quiet meanwhile."""
    try:
        status = path.stat()
    except FileNotFoundError:
        broken = path.is_symlink()
        what = "the link leads nowhere" if broken else "the file does not exist"
        raise _error(path, what, f"Check the path, which is taken from {Path.cwd()}.") from None
    except (OSError, ValueError) as error:  # a name with a null byte, a link to itself
        raise _unreadable(path, error) from None
    if stat.S_ISDIR(status.st_mode):
        raise _error(path, "this is a folder, where a picture belongs", "Name one of the files in it.")
    if not stat.S_ISREG(status.st_mode):
        raise _error(path, "this is no plain file", "Name a picture.")
    if status.st_size == 0:
        raise _error(path, "the file is empty (0 bytes)", "Copy it anew, or take it away.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None  # ours is checked here, before anything is decoded
        try:
            try:
                file = path.open("rb")
            except OSError as error:
                raise _unreadable(path, error) from None
            with file:
                with _decoding(path):
                    image = Image.open(file, formats=FORMATS)
                count = image.width * image.height
                if count > most_pixels:
                    what = (
                        f"{image.width:,} x {image.height:,} are {count:,} pixels, and at most {most_pixels:,} are read"
                    )
                    raise _error(path, what, "Make it smaller, or raise data.most_pixels.")
                yield image
        finally:
            Image.MAX_IMAGE_PIXELS = limit


@contextmanager
def _decoding(path: Path) -> Iterator[None]:
    """PIL meets bad bytes with errors of many kinds."""
    try:
        yield
    except PictureError:
        raise
    except UnidentifiedImageError:
        raise _error(path, *_unidentified(path)) from None
    except MemoryError:
        raise _error(path, "there is not enough memory for it", "Make it smaller.") from None
    except Exception as error:
        said = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        raise _error(path, f"the picture is damaged or cut short ({said})", _REMEDY) from error


def _unidentified(path: Path) -> tuple[str, str]:
    """What a file is that is none of the formats, by its first bytes."""
    with path.open("rb") as file:
        head = file.read(512)
    if head[4:8] == b"ftyp":
        return "this is HEIC, AVIF or a film", f"Save it as JPEG or PNG; {_READABLE}."
    if head.startswith(b"%!PS") or head.startswith(b"%PDF"):
        return "this is PostScript or PDF", f"Save it as PNG; {_READABLE}."
    if b"<svg" in head.lower():
        return "this is SVG, a drawing and not pixels", f"Save it as PNG; {_READABLE}."
    if b"<html" in head.lower() or b"<!doctype" in head.lower():
        return "this is a web page, as a failed download leaves it", "Download the picture again."
    if head.startswith(b"version https://git-lfs"):
        return "this is a pointer of Git LFS and not the picture", "Fetch it with 'git lfs pull'."
    if not head.strip(b"\0"):
        return "the file holds zeros only", "Copy it anew, or take it away."
    return "this is no picture, or one damaged at its beginning", f"Save it anew; {_READABLE}."


def _upright(image: Image.Image) -> Image.Image:
    """Turned and mirrored as EXIF says; where the EXIF data are damaged it stays as it is, as viewers show it."""
    try:
        return ImageOps.exif_transpose(image)
    except (SyntaxError, ValueError, TypeError, KeyError, OSError, EOFError, IndexError, OverflowError, struct.error):
        return image


def _plain(image: Image.Image, kind: str | None, path: Path) -> Image.Image:
    """In a mode that PIL converts to grey and to colour without a loss of range or of transparency."""
    mode = image.mode
    if mode == "F" or mode == "I" or mode.startswith("I;"):
        return _of_many_bits(image, kind, path)
    if mode == "LAB":
        raise _error(path, "its colours are written as LAB", "Save it as RGB.")
    if image.has_transparency_data:
        picture = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("RGB")
    return image.convert("L" if mode in ("1", "L") else "RGB")


def _of_many_bits(image: Image.Image, kind: str | None, path: Path) -> Image.Image:
    """16 bits, which PIL also gives as 32 bits for some formats, and 32 bits -> 8 bits of grey."""
    values = np.asarray(image).astype(np.float64)
    if image.mode != "F" and (image.mode.startswith("I;16") or kind in ("PNG", "PPM")):
        top = 65535.0
        transparent = image.info.get("transparency")
        if isinstance(transparent, int):
            values[values == transparent] = top
    else:
        low, high = float(values.min()), float(values.max())
        tops = (1.0, 255.0, 65535.0) if image.mode == "F" else (255.0, 65535.0)
        if not (low >= 0 and high <= tops[-1]):  # also where one is not a number
            what = f"its values, of 32 bits, go from {low:g} to {high:g}, and not from 0 to 1, to 255 or to 65535"
            raise _error(path, what, "Scale them, or save it with 8 or 16 bits.")
        top = next(each for each in tops if high <= each)
    return Image.fromarray(np.rint(values * (255.0 / top)).astype(np.uint8))


def _unreadable(path: Path, error: OSError | ValueError) -> PictureError:
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return _error(path, f"the file cannot be read ({said})", "Check the path and its permissions.")


def _error(path: Path, what: str, remedy: str) -> PictureError:
    shown = Path(os.fsencode(path).decode("utf-8", "backslashreplace"))
    error = PictureError(message(shown, None, None, what, remedy))
    error.what, error.remedy = what, remedy
    return error
