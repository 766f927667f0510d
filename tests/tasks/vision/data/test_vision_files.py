"""The user's own pictures: folders, tables, paths on the command line, and files that do not belong there."""

import os
import unicodedata
import warnings
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from zoo.data.loader import Loader
from zoo.data.option_hints import set_offered_options
from zoo.data.splits import split_stratified
from zoo.data.tables import collect_errors
from zoo.errors import ConfigError, DataError
from zoo.tasks.vision.data.image_folder import picture_walk
from zoo.tasks.vision.data.image_list import ReaderOptions
from zoo.tasks.vision.data.image_set import ImageSet
from zoo.tasks.vision.data.readers import read_image_folder, read_image_table, read_pictures_at

SAMPLES = Path(__file__).parents[4] / "data" / "samples" / "vision"
PLAIN = ReaderOptions(channels=1)
SKIP = ReaderOptions(channels=1, on_bad_row="skip")
Draw = Callable[..., Path]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "root").mkdir()
    return tmp_path / "root"


@pytest.fixture
def draw(root: Path) -> Draw:
    """`draw("cats/1.png", 7)` saves a picture of 2 x 3 pixels of this grey."""

    def _draw(name: str, grey: int = 0) -> Path:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.new("L", (3, 2), grey).save(path)
        return path

    return _draw


@pytest.fixture
def animals(root: Path, draw: Draw) -> Path:
    for place, label in enumerate(("cats", "dogs")):
        for number in range(5):
            draw(f"{label}/{number}.png", 10 * place + number)
    return root


def said(read: Callable[[], ImageSet]) -> tuple[ImageSet, str]:
    """The set, and all warnings in one text."""
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        pictures = read()
    assert all(each.category is UserWarning for each in found)
    return pictures, "\n".join(str(each.message) for each in found)


def counts(pictures: ImageSet) -> dict[tuple[str, str], int]:
    names = [pictures.label_names[label] if label >= 0 else "" for label in pictures.labels]
    return dict(Counter(zip(names, pictures.splits.tolist(), strict=True)))


def damage(path: Path, keep: float = 0.6) -> None:
    """Cuts off pixels, and keeps the header."""
    noise = np.random.default_rng(0).integers(0, 256, (20, 20), dtype=np.uint8)
    Image.fromarray(noise).save(path)
    content = path.read_bytes()
    path.write_bytes(content[: int(keep * len(content))])


# folders


def test_a_folder_a_class(animals: Path) -> None:
    pictures = read_image_folder(animals, PLAIN)
    assert pictures.label_names == ("cats", "dogs")
    assert pictures.ids == [f"{label}/{number}.png" for label in ("cats", "dogs") for number in range(5)]
    assert pictures.labels.tolist() == [0] * 5 + [1] * 5
    assert counts(pictures) == {(label, split): n for label in ("cats", "dogs") for split, n in SIZES.items()}
    assert [int(pictures[number].pixels[0, 0, 0]) for number in range(10)] == [0, 1, 2, 3, 4, 10, 11, 12, 13, 14]
    assert pictures[3].pixels.shape == (1, 2, 3)
    assert (pictures[7].id, pictures[7].label) == ("dogs/2.png", 1)
    assert pictures.channels == 1
    assert pictures.size is None


SIZES = {"train": 3, "val": 1, "test": 1}


def test_the_split_is_always_the_same_and_another_with_another_seed(animals: Path) -> None:
    first, again, other = (read_image_folder(animals, PLAIN, split_seed=seed).splits.tolist() for seed in (0, 0, 1))
    assert first == again
    assert first != other


def test_folders_of_splits(root: Path, draw: Draw) -> None:
    for split, grey in (("train", 1), ("val", 2), ("test", 3)):
        for label in ("cats", "dogs"):
            draw(f"{split}/{label}/a.png", grey)
    pictures = read_image_folder(root, PLAIN)
    assert pictures.ids == [
        f"{split}/{label}/a.png" for split in ("test", "train", "val") for label in ("cats", "dogs")
    ]
    assert pictures.splits.tolist() == ["test", "test", "train", "train", "val", "val"]
    assert [int(pictures[number].pixels[0, 0, 0]) for number in range(6)] == [3, 3, 1, 1, 2, 2]


@pytest.mark.parametrize("missing", [("val",), ("test",), ("val", "test")])
def test_missing_splits_are_held_out_of_train(root: Path, draw: Draw, missing: tuple[str, ...]) -> None:
    for split in ("train", "val", "test"):
        for number in range(10 * (split not in missing)):
            draw(f"{split}/{'cats' if number % 2 else 'dogs'}/{number}.png")
    pictures, text = said(lambda: read_image_folder(root, PLAIN))
    assert f"no folder {' and no '.join(missing)}; a fifth of train is held out" in text
    expected = {"train": 5 - len(missing)} | {split: 1 if split in missing else 5 for split in ("val", "test")}
    assert counts(pictures) == {(label, split): n for label in ("cats", "dogs") for split, n in expected.items()}


def test_nested_folders_and_endings_in_any_case(animals: Path, draw: Draw) -> None:
    draw("cats/young/2020/a.PNG")
    draw("cats/young/b.JPeG")
    pictures = read_image_folder(animals, PLAIN)
    assert pictures.ids[5:7] == ["cats/young/b.JPeG", "cats/young/2020/a.PNG"]  # files before folders
    assert pictures.labels.tolist() == [0] * 7 + [1] * 5


def test_what_is_left_out_is_counted(animals: Path, draw: Draw) -> None:
    (animals / "cats" / "notes.txt").write_text("x")
    (animals / "cats" / "more").write_text("x")
    (animals / "dogs" / "Thumbs.db").write_text("x")
    draw("cats/.hidden.png")
    draw(".cache/x.png")
    draw("loose.png")
    (animals / "empty" / "too").mkdir(parents=True)
    pictures, text = said(lambda: read_image_folder(animals, PLAIN))
    assert len(pictures) == 10
    assert pictures.label_names == ("cats", "dogs")
    assert "3 files not named as pictures (1 .db, 1 .txt, 1 without an ending; the first: cats/more)" in text
    assert "2 hidden files and folders" in text
    assert "1 picture outside of the class folders (the first: loose.png)" in text
    assert "1 class folder without a picture (the first: empty)" in text
    assert text.count("\n") == 0


def test_a_class_with_one_picture_is_learnt_and_not_scored(animals: Path, draw: Draw) -> None:
    draw("owls/1.png")
    pictures, text = said(lambda: read_image_folder(animals, PLAIN))
    assert counts(pictures)["owls", "train"] == 1
    assert "'owls' is not in every split" in text


@pytest.mark.parametrize(
    ("names", "message"),
    [
        ([], "it holds no folder. Put each class into a folder"),
        (["a.png"], "it holds no folder"),
        (["cats/a.txt"], "no picture has a label"),
        (["cats/a.png"], "'cats' is the only label. Give two labels at least."),
        (["cats/a.png", "dogs/a.png"], "no picture is in 'val'"),
        (
            ["train/cats/a.png", "val/cats/a.png", "birds/a.png"],
            "folder 'train', which is a split, stands beside 'birds'",
        ),
        (["train/cats/a.png", "valid/cats/a.png"], "folder 'valid' is not the name of a split. Rename it to 'val'"),
        (["Train/cats/a.png", "val/cats/a.png"], "folder 'Train' is not the name of a split. Rename it to 'train'"),
        (["val/cats/a.png", "test/cats/a.png"], "there is no folder 'train'"),
        (
            [f"{split}/{label}/a.png" for split in ("train", "val", "test") for label in ("cats", "dogs")]
            + ["test/owls/a.png"],
            "the label 'owls' is seen in test, and never in train. Put a picture with it into train",
        ),
        (
            [f"{split}/{label}/a.png" for split in ("train", "val", "test") for label in ("cats", "dogs")]
            + ["val/Cats/b.png"],
            "the label 'Cats' is seen in val, and never in train. Rename it to 'cats'.",
        ),
    ],
)
def test_folders_that_are_no_data(root: Path, draw: Draw, names: list[str], message: str) -> None:
    for name in names:
        if name.endswith("png"):
            draw(name)
        else:
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text("x")
    with pytest.raises(DataError) as caught:
        said(lambda: read_image_folder(root, PLAIN))
    assert message in str(caught.value)
    assert str(caught.value).startswith(str(root))


def test_classes_may_be_called_as_splits(root: Path, draw: Draw) -> None:
    for label in ("train", "car"):
        for number in range(3):
            draw(f"{label}/{number}.png")
    assert read_image_folder(root, PLAIN).label_names == ("car", "train")


def test_names_that_differ_in_letter_case_only(root: Path, draw: Draw) -> None:
    for label in ("A", "a"):
        for number in range(3):
            draw(f"{label}/{number}.png")
    pictures, text = said(lambda: read_image_folder(root, PLAIN))
    assert pictures.label_names == ("A", "a")
    assert "'A', 'a' are classes of their own, and differ in the case of letters only" in text


def test_names_in_any_script(root: Path, draw: Draw) -> None:
    composed, decomposed = (unicodedata.normalize(form, "café") for form in ("NFC", "NFD"))
    for label in (composed, decomposed, "犬 🐕"):
        for number in range(3):
            draw(f"{label}/{number} ü.png")
    pictures = read_image_folder(root, PLAIN)
    assert pictures.label_names == (composed, "犬 🐕")
    assert len(pictures) == len(set(pictures.ids)) == 9


def test_names_that_are_no_text(animals: Path) -> None:
    os.rename(os.fsencode(animals / "cats" / "0.png"), os.fsencode(animals / "cats") + b"/\xff.png")
    with pytest.raises(DataError, match=r"cats/\\xff\.png: the name of the file is not UTF-8"):
        read_image_folder(animals, PLAIN)
    pictures, text = said(lambda: read_image_folder(animals, SKIP))
    assert len(pictures) == 9
    assert "skipped 1 bad picture" in text


def test_folders_that_link_to_each_other(root: Path, draw: Draw) -> None:
    """Nine folders that link to each other are each visited once for a class, not in every order."""
    names = [f"class{number}" for number in range(9)]
    for name in names:
        draw(f"{name}/0.png")
        for other in set(names) - {name}:
            (root / name / other).symlink_to(root / other)
    walk = picture_walk(root)
    found = list(walk.files(root / "class0"))
    assert len({path.resolve() for path in found}) == len(found) == 9
    assert len(walk.loops) + len(walk.again) == 9 * 8 - 8


def test_links(animals: Path, tmp_path: Path, draw: Draw) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    Image.new("L", (3, 2)).save(elsewhere / "x.png")
    (animals / "dogs" / "more").symlink_to(elsewhere)
    (animals / "dogs" / "round").symlink_to(animals)
    (animals / "cats" / "self").symlink_to("self")
    pictures, text = said(lambda: read_image_folder(animals, PLAIN))
    assert len(pictures) == 11
    assert "dogs/more/x.png" in pictures.ids
    assert "1 link to a folder above (the first: dogs/round)" in text
    (animals / "cats" / "gone.png").symlink_to("nowhere")
    with pytest.raises(DataError, match=r"gone\.png: the link leads nowhere.*on_bad_row=skip leaves such pictures out"):
        said(lambda: read_image_folder(animals, PLAIN))


def test_one_file_in_two_places(animals: Path) -> None:
    (animals / "dogs" / "twin.png").symlink_to(animals / "cats" / "0.png")
    with pytest.raises(DataError, match=r"twin\.png: it is the same file as cats/0\.png, by a link\. Remove one"):
        read_image_folder(animals, PLAIN)


def test_bad_pictures_stop_or_are_skipped(animals: Path) -> None:
    (animals / "cats" / "0.png").write_bytes(b"")
    (animals / "cats" / "1.png").write_text("not a picture at all")
    with pytest.raises(DataError, match=r"cats/0\.png: the file is empty.*on_bad_row=skip leaves such pictures out"):
        read_image_folder(animals, PLAIN)
    damage(animals / "dogs" / "1.png")
    pictures, text = said(lambda: read_image_folder(animals, SKIP))
    assert len(pictures) == 7
    assert "skipped 3 bad pictures. The first: " in text
    assert "cats/0.png: the file is empty (0 bytes). Copy it anew, or take it away." in text


def test_damaged_pixels_are_named_when_they_are_met(animals: Path) -> None:
    damage(animals / "dogs" / "1.png")
    pictures = read_image_folder(animals, PLAIN)
    assert pictures[5].label == 1
    with pytest.raises(DataError, match=r"dogs/1\.png: the picture is damaged or cut short"):
        pictures[6]


def test_all_problems_are_collected(animals: Path) -> None:
    (animals / "cats" / "0.png").write_bytes(b"")
    damage(animals / "cats" / "1.png")
    damage(animals / "dogs" / "1.png")
    with collect_errors() as problems:
        read_image_folder(animals, PLAIN)
    assert [Path(str(each).partition(":")[0]).relative_to(animals).as_posix() for each in problems] == [
        "cats/0.png",
        "cats/1.png",
        "dogs/1.png",
    ]
    assert "on_bad_row" not in str(problems)


def test_no_picture_is_usable(animals: Path) -> None:
    for path in animals.rglob("*.png"):
        path.write_bytes(b"")
    with pytest.raises(DataError, match=r"no picture is usable. The first: .*the file is empty"):
        said(lambda: read_image_folder(animals, SKIP))


def test_a_trained_models_classes(animals: Path) -> None:
    pictures = read_image_folder(animals, PLAIN, labels=["birds", "dogs", "cats"])
    assert pictures.label_names == ("birds", "dogs", "cats")
    assert pictures.labels.tolist() == [2] * 5 + [1] * 5
    with pytest.raises(DataError, match=r"class 'cats' is not one of the 2 that the model knows. Did you mean 'cat'"):
        read_image_folder(animals, PLAIN, labels=["cat", "dogs"])


@pytest.mark.parametrize("name", ["missing", "cats/0.png"])
def test_what_is_no_folder(animals: Path, name: str) -> None:
    with pytest.raises(DataError, match=r"the folder does not exist|this is a file, where a folder belongs"):
        read_image_folder(animals / name, PLAIN)


def test_an_unreadable_folder(animals: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scandir = os.scandir

    def refuse(path: Path):
        if Path(path).name == "dogs":
            raise PermissionError(13, "Permission denied")
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refuse)
    with pytest.raises(DataError, match=r"dogs: the folder cannot be read \(Permission denied\)"):
        read_image_folder(animals, PLAIN)


def test_frames_are_counted(animals: Path) -> None:
    frames = [Image.new("L", (3, 2), grey) for grey in (9, 200)]
    frames[0].save(animals / "cats" / "z.gif", save_all=True, append_images=frames[1:])
    pictures, text = said(lambda: read_image_folder(animals, PLAIN))
    assert "1 file has more frames or pages than one, the first is read (such as cats/z.gif)" in text
    assert int(pictures[5].pixels[0, 0, 0]) == 9


@pytest.mark.parametrize("options", [{"channels": 2}, {"on_bad_row": "ignore"}, {"most_pixels": 0}])
def test_options_of_reading(options: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=f"data.{next(iter(options))}="):
        ReaderOptions(**options)  # type: ignore[arg-type]


def test_a_worker_process_says_no_more_than_this_one(animals: Path) -> None:
    damage(animals / "dogs" / "1.png")
    pictures = read_image_folder(animals, PLAIN)
    loader = Loader(pictures, collate=list, batch_size=5, num_workers=1)
    batches = iter(loader)
    assert [each.id for each in next(batches)] == pictures.ids[:5]
    with pytest.raises(DataError) as caught:
        next(batches)
    assert str(caught.value).startswith(f"{animals / 'dogs' / '1.png'}: the picture is damaged or cut short")
    assert "\n" not in str(caught.value)


# tables


@pytest.fixture
def table(animals: Path) -> Callable[..., Path]:
    """Writes a table beside the class folders."""

    def write(rows: str, header: str = "path,label,split") -> Path:
        path = animals / "pictures.csv"
        path.write_text(f"{header}\n{rows}\n", encoding="utf-8")
        return path

    return write


ROWS = """cats/0.png,cat,train
dogs/0.png,dog,train
cats/1.png,cat,val
dogs/1.png,dog,val
cats/2.png,cat,test
dogs/2.png,dog,test
cats/3.png,,
dogs/3.png,dog,"""


def test_a_table(table) -> None:
    pictures = read_image_table(table(ROWS), PLAIN)
    assert pictures.label_names == ("cat", "dog")
    assert pictures.labels.tolist() == [0, 1, 0, 1, 0, 1, -1, 1]
    assert pictures.splits.tolist() == ["train", "train", "val", "val", "test", "test", "", ""]
    assert pictures.ids == [row.partition(",")[0] for row in ROWS.splitlines()]
    assert int(pictures[3].pixels[0, 0, 0]) == 11


def test_a_table_without_splits_and_with_absolute_paths(table, animals: Path, monkeypatch, tmp_path: Path) -> None:
    paths = [animals / "cats" / f"{n}.png" for n in range(5)] + [Path(f"dogs/{n}.png") for n in range(5)]
    path = table("\n".join(f"{each},{'cat' if each.is_absolute() else 'dog'}" for each in paths), "path,label")
    monkeypatch.chdir(tmp_path)
    pictures = read_image_table(path, PLAIN)
    assert counts(pictures) == {(label, split): n for label in ("cat", "dog") for split, n in SIZES.items()}
    assert pictures.ids == list(map(str, paths))
    assert pictures[0].pixels.shape == (1, 2, 3)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ("cats/9.png,cat,train", "line 10, column 'path': there is no file"),
        (r"cats\4.png,cat,train", "Write / between folders"),
        ("cats,cat,train", "line 10, column 'path': 'cats': this is a folder"),
        ("./cats/0.png,cat,train", "line 10, column 'path': './cats/0.png' is already the picture of line 2"),
        (",cat,train", "line 10, column 'path': the cell is empty"),
        ("cats/4.png,,train", "line 10, column 'label': the picture is in split 'train' and has no label"),
        ("empty.png,cat,train", "line 10, column 'path': 'empty.png': the file is empty (0 bytes). Copy it anew"),
    ],
)
def test_bad_rows(table, animals: Path, rows: str, message: str) -> None:
    (animals / "empty.png").write_bytes(b"")
    with pytest.raises(DataError) as caught:
        read_image_table(table(f"{ROWS}\n{rows}"), PLAIN)
    assert message in str(caught.value)
    assert str(caught.value).startswith(f"{animals / 'pictures.csv'}, line 10")
    pictures, text = said(lambda: read_image_table(animals / "pictures.csv", SKIP))
    assert len(pictures) == 8
    assert "skipped 1 bad row. The first: " in text
    assert message.removesuffix("Write / between folders") in text


def test_a_table_of_damaged_pictures(table, animals: Path) -> None:
    damage(animals / "cats" / "0.png")
    (animals / "dogs" / "1.png").write_bytes(b"")
    path = table(f"{ROWS}\nnowhere.png,dog,train")
    with collect_errors() as problems:
        read_image_table(path, PLAIN)
    assert [str(each).partition(", column 'path': ")[0] for each in problems] == [
        f"{path}, line {line}" for line in (2, 5, 10)
    ]


def test_a_table_for_a_trained_model(table) -> None:
    pictures = read_image_table(table("cats/0.png", "path"), PLAIN, labels=["dog", "cat"])
    assert pictures.labels.tolist() == [-1]
    with pytest.raises(
        DataError, match=r"line 2, column 'label': 'cats' is not one of the 2 values it can have. Did you"
    ):
        read_image_table(table("cats/0.png,cats", "path,label"), PLAIN, labels=["dog", "cat"])


# paths on the command line


def test_pictures_for_a_trained_model(animals: Path, draw: Draw, table) -> None:
    Image.new("L", (3, 2), 77).save(animals / "photo", "PNG")
    draw("new/x.png")
    (animals / "new" / "readme.md").write_text("x")
    paths = [animals / "photo", animals / "new", animals / "cats", animals / "cats" / "0.png"]
    pictures, text = said(lambda: read_pictures_at(paths, PLAIN, labels=["dogs", "cats"]))
    assert pictures.ids == [
        str(animals / name) for name in ("photo", "new/x.png", *(f"cats/{n}.png" for n in range(5)))
    ]
    assert pictures.labels.tolist() == [-1, -1] + [1] * 5
    assert pictures.splits.tolist() == ["", ""] + ["test"] * 5
    assert int(pictures[0].pixels[0, 0, 0]) == 77
    assert "1 file not named as pictures (1 .md; the first: readme.md)" in text
    assert "1 picture is named more than once, and read once" in text


def test_a_folder_of_classes_or_splits_for_a_trained_model(animals: Path, draw: Draw) -> None:
    draw("more/train/dogs/x.png")
    pictures = read_pictures_at([animals], PLAIN, labels=["dogs", "cats"])
    assert counts(pictures) == {("cats", "test"): 5, ("dogs", "test"): 5, ("dogs", "train"): 1}


def test_a_table_of_pictures_for_a_trained_model(table, animals: Path) -> None:
    paths = [table("cats/0.png,cat\ncats/1.png,", "path,label")]
    pictures = read_pictures_at(paths, PLAIN, labels=["dog", "cat"])
    assert pictures.ids == ["cats/0.png", "cats/1.png"]
    assert pictures.splits.tolist() == ["test", ""]


def test_nothing_to_predict(root: Path, draw: Draw) -> None:
    (root / "notes.txt").write_text("x")
    for path, message in (
        (root, "holds no picture"),
        (root / "no.png", "does not exist"),
        (root / "notes.txt", "no picture"),
    ):
        with pytest.raises(DataError) as caught, set_offered_options(["on-bad-row"]):
            said(lambda path=path: read_pictures_at([path], PLAIN, labels=["a", "b"]))
        assert message in str(caught.value)
        assert "on_bad_row" not in str(caught.value)


def test_bad_pictures_among_those_to_predict(root: Path, draw: Draw) -> None:
    good, bad = draw("a.png"), root / "bad.png"
    bad.write_bytes(b"")
    hint = r"the file is empty .* --on-bad-row=skip leaves such pictures out"
    with pytest.raises(DataError, match=hint), set_offered_options(["on-bad-row"]):
        read_pictures_at([bad, good], PLAIN, labels=["a", "b"])
    pictures, text = said(lambda: read_pictures_at([bad, good], SKIP, labels=["a", "b"]))
    assert pictures.ids == [str(good)]
    assert "skipped 1 bad picture" in text
    with pytest.raises(DataError, match="no picture is usable"):
        said(lambda: read_pictures_at([bad], SKIP, labels=["a", "b"]))


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("cats/0\0.png", ": it has NUL characters"),
        ("a" * 5000, ", column 'path': .*5,000 characters is too long for a file"),
    ],
)
def test_a_name_that_no_file_has(table, name: str, words: str) -> None:
    with pytest.raises(DataError, match=rf"line 10{words}") as caught:
        read_image_table(table(f"{ROWS}\n{name},cat,train"), PLAIN)
    assert len(str(caught.value)) < 1000
    pictures, text = said(lambda: read_image_table(table(f"{ROWS}\n{name},cat,train"), SKIP))
    assert len(pictures.ids) == 8
    assert "skipped 1 bad row" in text


# splits and samples


@given(st.lists(st.integers(-1, 3), max_size=60), st.integers(0, 5))
def test_every_label_is_split_in_the_same_shares(labels: list[int], seed: int) -> None:
    split = split_stratified(np.array(labels, dtype=np.int64), seed)
    for label in range(4):
        found = Counter(split[np.array(labels) == label].tolist()) if labels else Counter()
        size = labels.count(label)
        assert found[1] == found[2] == round(0.2 * size)
        assert found[0] == size - 2 * round(0.2 * size)
    assert all(part == -1 for part, label in zip(split.tolist(), labels, strict=True) if label == -1)


def test_the_samples() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        folder = read_image_folder(SAMPLES / "pictures", ReaderOptions())
        table = read_image_table(SAMPLES / "pictures.csv", ReaderOptions())
    assert folder.label_names == table.label_names == ("circle", "cross", "stripes")
    assert sorted(f"pictures/{name}" for name in folder.ids) == sorted(table.ids)
    assert counts(table) == {
        (label, s): n for label in table.label_names for s, n in (("train", 5), ("val", 2), ("test", 2))
    }
    assert counts(folder) == counts(table)
    for number in range(len(folder)):
        pixels = folder[number].pixels
        assert pixels.shape[0] == 3
        assert pixels.float().std() > 10
    assert sum(path.stat().st_size for path in SAMPLES.rglob("*") if path.is_file()) < 60_000
    assert torch.equal(folder[0].pixels, table[table.ids.index(f"pictures/{folder.ids[0]}")].pixels)


# the command line

SMALL = ("model=se_resnet", "data.height=8", "data.width=8", "data.max_epochs=1", "data.batch_size=8")


def test_a_check_names_every_bad_picture(cli, animals: Path) -> None:
    (animals / "cats" / "0.png").write_bytes(b"")
    damage(animals / "dogs" / "1.png")
    done = cli("train", *SMALL, "data=image_folder", f"data.folder={animals}", "check=true")
    assert done.code == 2
    assert done.err.startswith("zoo: 2 problems\n")
    assert f"1. {animals}/cats/0.png: the file is empty" in done.err
    assert f"2. {animals}/dogs/1.png: the picture is damaged" in done.err


def test_train_and_predict_by_commands(cli, animals: Path, table) -> None:
    path = table("\n".join(f"{name}/{n}.png,{name}" for name in ("cats", "dogs") for n in range(5)), "path,label")
    assert cli("train", *SMALL, "data=image_table", f"data.table={path}", "run_dir=run").code == 0
    done = cli("predict", "run/checkpoints/best.ckpt", animals / "cats" / "0.png", animals / "dogs")
    assert done.code == 0
    rows = [line.split(",")[:3] for line in done.out.splitlines()[1:]]
    assert rows == [[f"{animals}/cats/0.png", "", ""]] + [[f"{animals}/dogs/{n}.png", "test", "dogs"] for n in range(5)]
    done = cli("predict", "run/checkpoints/best.ckpt", animals / "pictures.png")
    assert done.code == 2
    assert "pictures.png: the file does not exist" in done.err


@pytest.mark.parametrize("option", ["folder", "table"])
def test_the_path_must_be_given(cli, option: str) -> None:
    done = cli("train", *SMALL, f"data=image_{option}")
    assert done.code == 2
    assert f"data.{option}" in done.err
