"""Attention maps on disk: write them as a stream, read them back, score, diagnose, say and draw them.

    with record(net) as recorded:
        net(x, support)
    with zoo.maps.Writer("maps", model="gat", layers=list(sites(net))) as writer:
        writer.add("cora", recorded, axis_labels={"source": ids, "target": ids})

    maps = zoo.maps.load("maps")
    maps["cora"]["layers.0.attend"].weights
    maps.to_pandas()

The modules `score`, `diagnose`, `words`, `tables` and `draw` take a `LabelledMap`, as `add` and `load` give it.
"""

from zoo.maps.folder import Writer
from zoo.maps.labelled import LabelledMap
from zoo.maps.labelling import edge_gold, labelled
from zoo.maps.reading import Example, Maps, load

__all__ = ["Example", "LabelledMap", "Maps", "Writer", "edge_gold", "labelled", "load"]
