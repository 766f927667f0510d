"""Reads a picture file as upright 8-bit pixels, grey or RGB; an error says in one sentence why it cannot be read."""

from __future__ import annotations

import os
import stat
import struct
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
import torch
from jaxtyping import UInt8
from PIL import ExifTags, Image, ImageOps, UnidentifiedImageError
from torch import Tensor

from zoo.data.option_hints import format_option
from zoo.data.tables import message
from zoo.errors import DataError

Channels = Literal[1, 3]

FORMATS = ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF", "PPM")
"""PIL's names of the formats that are read. PIL reads others too, some of which run other programs (EPS)."""
_SUFFIXES = ".jpg .jpeg .jpe .jfif .png .apng .webp .bmp .dib .tif .tiff .gif .ppm .pgm .pbm .pnm .pfm"
SUFFIXES = frozenset(_SUFFIXES.split())
"""Endings of the names of such files, in lower case."""
MOST_PIXELS = 100_000_000
"""Default maximum for a picture, 300 MB in RGB. The header of a small file can claim any size."""
_OF_EXIF = (SyntaxError, ValueError, TypeError, KeyError, OSError, EOFError, IndexError, OverflowError, struct.error)
"""What PIL raises where EXIF data are damaged."""
_AT_ONCE = 1 << 22
"""Pixels that are converted at once."""

_READABLE = "JPEG, PNG, WebP, BMP, TIFF, GIF and PPM are read"
_REMEDY = "Save it anew, or take it away."


class ImageError(DataError):
    """A picture cannot be read. `what` and `remedy` are the message without the name of the file."""

    what: str = ""
    remedy: str = ""


class Header(NamedTuple):
    """The header of a picture file."""

    format: str
    height: int
    width: int
    """Width after the rotation that EXIF data ask for."""
    frames: bool
    """True if the file has several pictures, of which the first is read."""


def read_picture(
    path: Path | str, *, channels: Channels, at_least: int | None = None, most_pixels: int = MOST_PIXELS
) -> UInt8[Tensor, "c h w"]:
    """Reads the first picture of a file, and rotates it as its EXIF data ask for.

    - The background of transparent pixels is white.
    - 16-bit values are divided by 257 and rounded (PIL itself drops the lower byte of 16-bit colour).
    - The range of 32-bit values is from 0 to 1 (floating point only), 255 or 65535, the first that holds them all;
      values outside of these are an error.
    - Grey is 0.299 red + 0.587 green + 0.114 blue. Colour profiles are not applied.

    Args:
        path: A JPEG, PNG, WebP, BMP, TIFF, GIF or PPM; the ending of the name does not matter.
        channels: 1 (grey) or 3 (red, green, blue).
        at_least: Minimum size of both sides of a JPEG that is decoded at 1/2, 1/4 or 1/8 of its size. Default: full
            size.
        most_pixels: Maximum number of pixels, which is checked before the picture is decoded.

    Raises:
        ImageError: The picture cannot be read. The message has the file and a remedy.
    """
    if channels not in (1, 3):
        raise ValueError(f"channels={channels!r}: a picture has 1 (grey) or 3 (red, green, blue)")
    path = Path(path)
    with _open(path, most_pixels) as image:
        if at_least is not None:
            image.draft(None, (at_least, at_least))
        with _explain_decoding(path):
            image.load()
        kind = image.format
        with _explain_decoding(path):
            plain = _plain(_upright(image), kind, path)
            pixels = _pixels(plain, channels)
    return torch.from_numpy(pixels).permute(2, 0, 1)


def read_header(path: Path | str, *, most_pixels: int = MOST_PIXELS) -> Header:
    """Reads the header of a file. The pixels are not decoded, and may be damaged."""
    path = Path(path)
    with _open(path, most_pixels) as image:
        with _explain_decoding(path):
            frames = bool(getattr(image, "is_animated", False))
        size = (image.width, image.height) if _is_turned(image) else (image.height, image.width)
        return Header(str(image.format), *size, frames)


@contextmanager
def _open(path: Path, most_pixels: int) -> Iterator[Image.Image]:
    """Opens a picture without decoding it, and silences PIL's warnings, most of which concern EXIF data."""
    try:
        status = path.stat()
    except FileNotFoundError:
        broken = path.is_symlink()
        what = "the link leads nowhere" if broken else "the file does not exist"
        raise picture_error(path, what, f"Check the path, which is taken from {Path.cwd()}.") from None
    except (OSError, ValueError) as error:  # a name with a null byte, a link to itself
        raise _unreadable(path, error) from None
    if stat.S_ISDIR(status.st_mode):
        raise picture_error(path, "this is a folder, where a picture belongs", "Name one of the files in it.")
    if not stat.S_ISREG(status.st_mode):
        raise picture_error(path, "this is no plain file", "Name a picture.")
    if status.st_size == 0:
        raise picture_error(path, "the file is empty (0 bytes)", "Copy it anew, or take it away.")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        limit, Image.MAX_IMAGE_PIXELS = Image.MAX_IMAGE_PIXELS, None  # our own limit is checked below
        try:
            try:
                file = path.open("rb")
            except OSError as error:
                raise _unreadable(path, error) from None
            with file:
                with _explain_decoding(path):
                    image = Image.open(file, formats=FORMATS)
                count = image.width * image.height
                if count > most_pixels:
                    what = (
                        f"{image.width:,} x {image.height:,} are {count:,} pixels, and at most {most_pixels:,} are read"
                    )
                    raise picture_error(path, what, f"Make it smaller, or raise {format_option('most_pixels')}.")
                yield image
        finally:
            Image.MAX_IMAGE_PIXELS = limit


@contextmanager
def _explain_decoding(path: Path) -> Iterator[None]:
    """Turns the errors of many types that PIL raises for bad bytes into ImageError."""
    try:
        yield
    except ImageError:
        raise
    except UnidentifiedImageError:
        raise picture_error(path, *_identify(path)) from None
    except MemoryError:
        raise picture_error(path, "there is not enough memory for it", "Make it smaller.") from None
    except Exception as error:
        said = str(error).splitlines()[0].rstrip(".") if str(error) else type(error).__name__
        raise picture_error(path, f"the picture is damaged or cut short ({said})", _REMEDY) from error


def _identify(path: Path) -> tuple[str, str]:
    """Returns what a file of another format is, by its first bytes, and a remedy."""
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


def _is_turned(image: Image.Image) -> bool:
    """Whether EXIF data ask for height and width to be exchanged."""
    with suppress(*_OF_EXIF):
        return image.getexif().get(ExifTags.Base.Orientation, 1) in (5, 6, 7, 8)
    return False


def _upright(image: Image.Image) -> Image.Image:
    """Rotates and mirrors a picture as its EXIF data ask for; damaged EXIF data are ignored, as in viewers."""
    with suppress(
        SyntaxError, ValueError, TypeError, KeyError, OSError, EOFError, IndexError, OverflowError, struct.error
    ):
        ImageOps.exif_transpose(image, in_place=True)
    return image


def _plain(image: Image.Image, kind: str | None, path: Path) -> Image.Image:
    """Converts to a mode from which PIL converts to grey and RGB without losing range or transparency."""
    mode = image.mode
    if mode == "F" or mode == "I" or mode.startswith("I;"):
        return _convert_deep(image, kind, path)
    if mode == "LAB":
        raise picture_error(path, "its colours are written as LAB", "Save it as RGB.")
    if image.has_transparency_data:
        picture = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", picture.size, "white"), picture).convert("RGB")
    return _convert(image, "L" if mode in ("1", "L") else "RGB")


def _pixels(image: Image.Image, channels: Channels) -> UInt8[np.ndarray, "h w c"]:
    """Returns the pixels of a picture, converted in strips: a copy in PIL takes four bytes for a pixel of three."""
    found = np.empty((image.height, image.width, channels), dtype=np.uint8)
    rows = max(1, _AT_ONCE // image.width)
    for top in range(0, image.height, rows):
        end = min(top + rows, image.height)
        strip = image if end - top == image.height else image.crop((0, top, image.width, end))
        found[top:end] = np.asarray(_convert(strip, "L" if channels == 1 else "RGB")).reshape(end - top, -1, channels)
    return found


def _convert(image: Image.Image, mode: str) -> Image.Image:
    """Returns a picture in this mode: the same object if it is in it, where `convert` would copy it."""
    return image if image.mode == mode else image.convert(mode)


def _convert_deep(image: Image.Image, kind: str | None, path: Path) -> Image.Image:
    """Converts 16-bit grey, for which PIL uses 32 bits in some formats, and 32-bit grey to 8 bits."""
    values = np.asarray(image).astype(np.float64)
    if image.mode != "F" and (image.mode.startswith("I;16") or kind in ("PNG", "PPM")):
        top = 65535.0
        transparent = image.info.get("transparency")
        if isinstance(transparent, int):
            values[values == transparent] = top
    else:
        low, high = float(values.min()), float(values.max())
        tops = (1.0, 255.0, 65535.0) if image.mode == "F" else (255.0, 65535.0)
        if not (low >= 0 and high <= tops[-1]):  # also true if a value is NaN
            what = f"its values, of 32 bits, go from {low:g} to {high:g}, and not from 0 to 1, to 255 or to 65535"
            raise picture_error(path, what, "Scale them, or save it with 8 or 16 bits.")
        top = next(each for each in tops if high <= each)
    return Image.fromarray(np.rint(values * (255.0 / top)).astype(np.uint8))


def _unreadable(path: Path, error: OSError | ValueError) -> ImageError:
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return picture_error(path, f"the file cannot be read ({said})", "Check the path and its permissions.")


def picture_error(path: Path, what: str, remedy: str) -> ImageError:
    """Returns the error of a picture that cannot be used."""
    shown = Path(os.fsencode(path).decode("utf-8", "backslashreplace"))
    error = ImageError(message(shown, None, None, what, remedy))
    error.what, error.remedy = what, remedy
    return error
