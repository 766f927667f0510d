"""The core: every mechanism of attention, and how to put them together, observe them and trust them."""

from zoo.attention.attend import Attend, AttendFactory, Normaliser, Score
from zoo.attention.dropout import dropout
from zoo.attention.heads import Memory, MultiHead
from zoo.attention.normalisers import Degree, Softmax, Uniform
from zoo.attention.record import AttentionMap, Recording, Tap, record, sites
from zoo.attention.scores import GAT, Additive, Constant, Dot, GATv2, ScaledDot
from zoo.attention.sparse import SparsePattern
from zoo.attention.state import AttentionState
from zoo.attention.supports import DenseSupport, EdgeSupport, Support

__all__ = [
    "GAT",
    "Additive",
    "Attend",
    "AttendFactory",
    "AttentionMap",
    "AttentionState",
    "Constant",
    "Degree",
    "DenseSupport",
    "Dot",
    "EdgeSupport",
    "GATv2",
    "Memory",
    "MultiHead",
    "Normaliser",
    "Recording",
    "ScaledDot",
    "Score",
    "Softmax",
    "SparsePattern",
    "Support",
    "Tap",
    "Uniform",
    "dropout",
    "record",
    "sites",
]
