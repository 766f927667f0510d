"""Attention maps on disk: writing them as a stream, reading, scoring, diagnosing, describing and drawing them.

    with record(net) as recorded:
        net(x, support)
    with zoo.maps.Writer("maps", model="gat", layers=list(sites(net))) as writer:
        writer.add("cora", recorded, axis_labels={"source": ids, "target": ids})

    maps = zoo.maps.load("maps")
    maps["cora"]["layers.0.attend"].weights
    maps.to_pandas()

The modules `metrics`, `diagnose`, `describe`, `dataframes` and `plots` take a `LabelledMap`, which `add` and `load`
return.
"""

from typing import TYPE_CHECKING

from zoo.lazy_exports import import_lazily

if TYPE_CHECKING:
    from zoo.maps.build_labelled_map import edge_gold, label_map
    from zoo.maps.labelled_map import LabelledMap
    from zoo.maps.store_reader import Example, Maps, load
    from zoo.maps.store_writer import Writer
else:
    __getattr__ = import_lazily(__name__, __file__)

__all__ = ["Example", "LabelledMap", "Maps", "Writer", "edge_gold", "label_map", "load"]
