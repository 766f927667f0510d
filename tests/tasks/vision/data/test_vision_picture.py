"""Picture files: the values of every pixel format, and the message for every kind of damage."""

import io
import os
import struct
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from PIL import Image

from zoo.errors import DataError
from zoo.tasks.vision.data import image_io as picture
from zoo.tasks.vision.data.image_io import ImageError, read_header, read_picture

GREY = np.arange(0, 240, 20, dtype=np.uint8).reshape(3, 4)
RGB = np.stack([GREY, GREY[::-1], 255 - GREY], axis=2)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a picture é.png"


def rows(path: Path, channels: int = 1) -> list[list[int]]:
    """The first channel."""
    return read_picture(path, channels=channels)[0].tolist()


def luma(rgb: np.ndarray) -> np.ndarray:
    return rgb.astype(np.float64) @ [0.299, 0.587, 0.114]


@settings(max_examples=40)
@given(hnp.arrays(np.uint8, st.tuples(*[st.integers(1, 9)] * 2, st.just(3))))
def test_colour_comes_back_as_it_was_saved(tmp_path_factory: pytest.TempPathFactory, pixels: np.ndarray) -> None:
    path = tmp_path_factory.getbasetemp() / "colour.png"
    Image.fromarray(pixels).save(path)
    read = read_picture(path, channels=3)
    assert read.dtype == torch.uint8
    assert torch.equal(read, torch.from_numpy(pixels).permute(2, 0, 1))
    grey = read_picture(path, channels=1)
    assert np.abs(grey[0].numpy() - luma(pixels)).max() <= 1


@settings(max_examples=40)
@given(hnp.arrays(np.uint8, st.tuples(*[st.integers(1, 9)] * 2)), st.sampled_from(["png", "bmp", "tif", "gif", "pgm"]))
def test_grey_comes_back_in_every_format(
    tmp_path_factory: pytest.TempPathFactory, pixels: np.ndarray, kind: str
) -> None:
    path = tmp_path_factory.getbasetemp() / f"grey.{kind}"
    Image.fromarray(pixels).save(path)
    assert np.array_equal(read_picture(path, channels=1)[0].numpy(), pixels)
    assert np.array_equal(read_picture(path, channels=3).numpy(), np.stack([pixels] * 3))


@settings(max_examples=40)
@given(hnp.arrays(np.uint16, st.tuples(*[st.integers(1, 9)] * 2)), st.sampled_from(["png", "tif", "pgm"]))
def test_sixteen_bits_are_scaled_and_not_clipped(
    tmp_path_factory: pytest.TempPathFactory, pixels: np.ndarray, kind: str
) -> None:
    path = tmp_path_factory.getbasetemp() / f"deep.{kind}"
    Image.fromarray(pixels).save(path)
    expected = np.rint(pixels.astype(np.float64) / 257)
    assert np.array_equal(read_picture(path, channels=1)[0].numpy(), expected)


def png(header: tuple[int, int], content: np.ndarray, *chunks: tuple[bytes, bytes]) -> bytes:
    """A PNG by its specification: (bits, colour type) and rows of bytes."""
    import zlib

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    lines = b"".join(b"\0" + row.tobytes() for row in content)
    size = struct.pack(">IIBBBBB", content.shape[1], content.shape[0], *header, 0, 0, 0)
    parts = [(b"IHDR", size), *chunks, (b"IDAT", zlib.compress(lines)), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(chunk(*part) for part in parts)


def test_colour_of_sixteen_bits_keeps_its_upper_byte(path: Path) -> None:
    values = np.arange(0, 60000, 5000).reshape(2, 2, 3).astype(">u2")
    path.write_bytes(png((16, 2), values))
    found = read_picture(path, channels=3).permute(1, 2, 0).numpy()
    assert np.abs(found - values.astype(float) / 257).max() <= 1


def test_transparent_grey_of_sixteen_bits_is_white(path: Path) -> None:
    values = np.array([[0, 1000, 65535]], dtype=">u2")
    path.write_bytes(png((16, 0), values, (b"tRNS", struct.pack(">H", 1000))))
    assert rows(path) == [[0, 255, 255]]


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array([[0, 1, 255]], np.int32), [[0, 1, 255]]),
        (np.array([[0, 257, 65535]], np.int32), [[0, 1, 255]]),
        (np.array([[0, 0.5, 1]], np.float32), [[0, 128, 255]]),
        (np.array([[0, 100.4, 255]], np.float32), [[0, 100, 255]]),
        (np.array([[0, 25700, 65535]], np.float32), [[0, 100, 255]]),
    ],
)
def test_thirty_two_bits_by_their_largest_value(tmp_path: Path, values: np.ndarray, expected: list[list[int]]) -> None:
    Image.fromarray(values).save(tmp_path / "a.tif")
    assert rows(tmp_path / "a.tif") == expected


@pytest.mark.parametrize("value", [-1.0, 70000.0, float("nan"), float("inf")])
def test_thirty_two_bits_of_no_known_range(tmp_path: Path, value: float) -> None:
    Image.fromarray(np.array([[0, value]], np.float32)).save(tmp_path / "a.tif")
    with pytest.raises(ImageError, match=r"a\.tif: its values, of 32 bits, go from .*Scale them"):
        read_picture(tmp_path / "a.tif", channels=1)


def test_one_bit(path: Path) -> None:
    Image.fromarray(np.array([[True, False]])).save(path)
    assert rows(path) == [[255, 0]]


def test_a_palette(path: Path) -> None:
    image = Image.new("P", (3, 1))
    image.putpalette([255, 0, 0, 0, 255, 0, 1, 2, 3])
    image.putdata([0, 1, 2])
    image.save(path)
    assert read_picture(path, channels=3)[:, 0].T.tolist() == [[255, 0, 0], [0, 255, 0], [1, 2, 3]]
    image.save(path, transparency=1)
    assert read_picture(path, channels=3)[:, 0].T.tolist() == [[255, 0, 0], [255, 255, 255], [1, 2, 3]]


@pytest.mark.parametrize("channels", [1, 3])
def test_transparency_lies_over_white(path: Path, channels: int) -> None:
    alpha = np.linspace(0, 255, 12).astype(np.uint8).reshape(3, 4)
    expected = (GREY / 255 * alpha + 255 - alpha)[None]
    for layers in ([GREY, alpha], [GREY, GREY, GREY, alpha]):
        Image.fromarray(np.stack(layers, axis=2)).save(path)
        assert np.abs(read_picture(path, channels=channels).numpy() - expected).max() <= 1


def test_a_transparent_colour(path: Path) -> None:
    Image.fromarray(RGB).save(path, transparency=tuple(map(int, RGB[1, 2])))
    found = read_picture(path, channels=3)
    assert found[:, 1, 2].tolist() == [255, 255, 255]
    assert found[:, 0, 0].tolist() == RGB[0, 0].tolist()
    Image.fromarray(GREY).save(path, transparency=20)
    assert rows(path)[0] == [0, 255, 40, 60]


def test_cmyk_and_lab(tmp_path: Path) -> None:
    ink = np.zeros((2, 2, 4), np.uint8)
    ink[0, 0] = (0, 255, 255, 0)
    image = Image.frombytes("CMYK", (2, 2), ink.tobytes())
    image.save(tmp_path / "a.tif")
    assert read_picture(tmp_path / "a.tif", channels=3)[:, 0].T.tolist() == [[255, 0, 0], [255, 255, 255]]
    Image.frombytes("CMYK", (16, 16), b"\0" * 1024).save(tmp_path / "a.jpg", quality=95)
    assert read_picture(tmp_path / "a.jpg", channels=1).min() > 250
    Image.new("LAB", (2, 2)).save(tmp_path / "lab.tif")
    with pytest.raises(ImageError, match="LAB"):
        read_picture(tmp_path / "lab.tif", channels=3)


def turned(pixels: np.ndarray, orientation: int) -> np.ndarray:
    """EXIF 2.3, tag 274: which side of the picture the first row and the first column of the file are."""
    first_row, first_column = {
        1: "top left", 2: "top right", 3: "bottom right", 4: "bottom left",
        5: "left top", 6: "right top", 7: "right bottom", 8: "left bottom",
    }[orientation].split()  # fmt: skip
    if first_row in ("left", "right"):
        pixels = pixels.T
        first_row, first_column = first_column, first_row
    return pixels[:: -1 if first_row == "bottom" else 1, :: -1 if first_column == "right" else 1]


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("kind", ["png", "tif", "webp"])
def test_the_picture_is_turned_as_exif_says(tmp_path: Path, orientation: int, kind: str) -> None:
    path = tmp_path / f"a.{kind}"
    exif = Image.Exif()
    exif[0x0112] = orientation
    Image.fromarray(np.stack([GREY] * 3, axis=2)).save(
        path, exif=exif, **({"lossless": True} if kind == "webp" else {})
    )
    assert rows(path) == turned(GREY, orientation).tolist()


def test_exif_holds_for_jpeg_and_for_deep_grey(tmp_path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    picture = np.zeros((16, 32), np.uint8)
    picture[:, :8] = 200  # the left side of the file is the top of the picture
    Image.fromarray(picture).save(tmp_path / "a.jpg", exif=exif)
    found = read_picture(tmp_path / "a.jpg", channels=1)[0]
    assert found.shape == (32, 16)
    assert found[:8].min() > 190
    assert found[8:].max() < 10
    Image.fromarray(picture.astype(np.uint16) * 257).save(tmp_path / "a.png", exif=exif)
    assert np.array_equal(read_picture(tmp_path / "a.png", channels=1)[0].numpy(), picture.T[:, ::-1])


@pytest.mark.parametrize(
    "exif",
    [b"Exif\0\0nonsense", b"Exif\0\0II*\0\xff\xff\xff\xff", b"Exif\0\0MM\0*\0\0\0\x08\xff\xff" + b"\x01\x12" * 30],
)
def test_damaged_exif_does_not_matter(tmp_path: Path, exif: bytes) -> None:
    Image.fromarray(GREY).save(tmp_path / "a.jpg", exif=exif)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert read_picture(tmp_path / "a.jpg", channels=1).shape == (1, 3, 4)


@pytest.mark.parametrize("kind", ["gif", "tif", "webp", "png"])
def test_of_several_frames_the_first(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"a.{kind}"
    frames = [Image.new("RGB", (4, 3), colour) for colour in ("red", "blue", "lime")]
    frames[0].save(path, save_all=True, append_images=frames[1:], **({"lossless": True} if kind == "webp" else {}))
    assert read_picture(path, channels=3)[:, 0, 0].tolist() == [255, 0, 0]
    assert read_header(path).frames
    frames[0].save(path)
    assert not read_header(path).frames


def test_the_header(tmp_path: Path) -> None:
    Image.new("L", (40, 30)).save(tmp_path / "a.jpg")
    assert read_header(tmp_path / "a.jpg") == ("JPEG", 30, 40, False)


def test_a_large_jpeg_is_decoded_smaller_but_not_below_what_is_wanted(tmp_path: Path) -> None:
    ramp = np.add.outer(np.arange(400), np.arange(640)) // 5
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.fromarray(ramp.astype(np.uint8)).save(tmp_path / "a.jpg", exif=exif)
    whole = read_picture(tmp_path / "a.jpg", channels=3)
    assert whole.shape == (3, 640, 400)
    wanted = {10: (80, 50), 51: (160, 100), 100: (160, 100), 101: (320, 200), 201: (640, 400), 9999: (640, 400)}
    for at_least, shape in wanted.items():
        read = read_picture(tmp_path / "a.jpg", channels=3, at_least=at_least)
        assert read.shape == (3, *shape)
        assert abs(read.float().mean() - whole.float().mean()) < 2
    Image.new("L", (400, 640)).save(tmp_path / "a.png")
    assert read_picture(tmp_path / "a.png", channels=1, at_least=10).shape == (1, 640, 400)


def encoded(kind: str, size: int = 64, **options: object) -> bytes:
    noise = np.random.default_rng(0).integers(0, 256, (size, size, 3), dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(noise).save(file, kind, **options)
    return file.getvalue()


@pytest.mark.parametrize("kind", ["JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF", "PPM"])
@pytest.mark.parametrize("share", [0.02, 0.5, 0.97])
def test_truncated_files(tmp_path: Path, kind: str, share: float) -> None:
    content = encoded(kind)
    (tmp_path / "cut").write_bytes(content[: int(share * len(content))])
    with pytest.raises(ImageError, match=r"cut: .*(damaged|no picture).*(Save it anew|take it away)"):
        read_picture(tmp_path / "cut", channels=3)


@settings(max_examples=150)
@given(st.data())
def test_damaged_files_are_read_or_named(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    content = bytearray(FORMATS[data.draw(st.sampled_from(sorted(FORMATS)))])
    for _ in range(data.draw(st.integers(1, 6))):
        content[data.draw(st.integers(0, min(len(content) - 1, 400)))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged"
    path.write_bytes(content)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            assert read_picture(path, channels=3, most_pixels=100_000).dtype == torch.uint8
        except ImageError as error:
            assert str(error).startswith(f"{path}: ")  # noqa: PT017 - either outcome is right


_EXIF = Image.Exif()
_EXIF[0x0112] = 6
FORMATS = {kind: encoded(kind, 16) for kind in ("JPEG", "PNG", "WEBP", "BMP", "TIFF", "GIF", "PPM")} | {
    "exif": encoded("JPEG", 16, exif=_EXIF),
    "lzw": encoded("TIFF", 16, compression="tiff_lzw"),
}


BAD = [
    (b"", "the file is empty (0 bytes)"),
    (b"\0" * 100, "zeros only"),
    (b"hello, I am a text", "no picture"),
    (b"<!DOCTYPE html><html>404</html>", "web page"),
    (b"<?xml version='1.0'?>\n<svg xmlns='http://www.w3.org/2000/svg'/>", "SVG"),
    (b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n", "PostScript"),
    (b"\0\0\0\x18ftypheic\0\0\0\0", "HEIC"),
    (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS"),
    (encoded("ICO", 16), "no picture"),
]


@pytest.mark.parametrize(("content", "said"), BAD, ids=[said for _, said in BAD])
def test_files_that_are_no_pictures(path: Path, content: bytes, said: str) -> None:
    path.write_bytes(content)
    for read in (read_header, lambda path: read_picture(path, channels=3)):
        with pytest.raises(DataError) as caught:
            read(path)
        assert said in str(caught.value)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)


def test_postscript_is_never_run(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: object, **__: object) -> None:
        raise AssertionError("a program was started")

    monkeypatch.setattr("subprocess.Popen", run)
    monkeypatch.setattr("subprocess.check_call", run)
    path.write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 10 10\n%%EndComments\nshowpage\n%%EOF\n" * 10)
    with pytest.raises(ImageError):
        read_picture(path, channels=3)


def test_bombs_are_found_before_they_are_decoded(path: Path) -> None:
    size = struct.pack(">IIBBBBB", 60_000, 60_000, 8, 2, 0, 0, 0)
    content = png((8, 2), np.zeros((1, 1, 3), np.uint8))
    import zlib

    header = b"IHDR" + size
    path.write_bytes(content[:12] + header + struct.pack(">I", zlib.crc32(header)) + content[33:])
    with pytest.raises(ImageError, match=r"3,600,000,000 pixels, and at most 100,000,000.*raise data\.most_pixels"):
        read_picture(path, channels=3)
    Image.new("1", (300, 200)).save(path)
    with pytest.raises(ImageError, match=r"300 x 200 are 60,000 pixels"):
        read_header(path, most_pixels=59_999)
    assert read_picture(path, channels=1, most_pixels=60_000).shape == (1, 200, 300)


def test_ones_own_limit_holds_in_place_of_pils(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    Image.new("L", (30, 20)).save(path)
    assert read_picture(path, channels=1).shape == (1, 20, 30)
    assert Image.MAX_IMAGE_PIXELS == 100


def test_what_is_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "gone").symlink_to("nowhere.png")
    os.mkfifo(tmp_path / "pipe")
    said = {
        "": "this is a folder",
        "missing.png": "does not exist",
        "gone": "the link leads nowhere",
        "loop": "cannot be read",
        "pipe": "no plain file",
        "a\0b": "cannot be read",
    }
    for name, what in said.items():
        with pytest.raises(ImageError, match=what):
            read_picture(tmp_path / name, channels=3)

    def refuse(*_: object) -> None:
        raise PermissionError(13, "Permission denied")

    Image.new("L", (3, 2)).save(tmp_path / "a.png")
    monkeypatch.setattr(Path, "open", refuse)  # root may read everything
    with pytest.raises(ImageError, match=r"a\.png: the file cannot be read \(Permission denied\)"):
        read_picture(tmp_path / "a.png", channels=3)


def test_channels_are_one_or_three(path: Path) -> None:
    with pytest.raises(ValueError, match="channels=4"):
        read_picture(path, channels=4)  # type: ignore[arg-type]


@pytest.mark.parametrize("mode", ["RGB", "L", "RGBA", "P", "CMYK", "1"])
def test_pixels_are_those_of_a_picture_converted_in_one_piece(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mode: str
) -> None:
    path = tmp_path / "a.tif"
    Image.fromarray(np.random.default_rng(0).integers(0, 255, (23, 7, 3), dtype=np.uint8)).convert(mode).save(path)
    whole = {channels: read_picture(path, channels=channels) for channels in (1, 3)}
    monkeypatch.setattr(picture, "_AT_ONCE", 5 * 7)
    for channels in (1, 3):
        assert torch.equal(read_picture(path, channels=channels), whole[channels])


def test_a_header_has_the_size_of_the_upright_picture(path: Path) -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    Image.new("RGB", (40, 30)).save(path, exif=exif)
    assert read_header(path) == ("PNG", 40, 30, False)
    assert read_picture(path, channels=3).shape == (3, 40, 30)
