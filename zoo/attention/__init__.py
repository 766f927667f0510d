"""The attention core: every mechanism, `Attend` and `MultiHead` to combine them, and `record` to observe them."""

from zoo.attention.attend import Attend, Normaliser, Score
from zoo.attention.coattention import Affinity, AlternatingCoAttention, AttentionFlow, CoAttention, TwoWayAttention
from zoo.attention.dropout import DropWeights, KeyDropout, RenormalisedDropout, dropout
from zoo.attention.factories import AttendFactory, SiteFactory
from zoo.attention.gates import CBAM, ChannelGate, EfficientChannel, SpatialGate, SqueezeExcitation, efficient_kernel
from zoo.attention.heads import MultiHead
from zoo.attention.kernels import fused_blocks as fused_blocks  # registers its kernel
from zoo.attention.kernels.scan import linear_recurrence
from zoo.attention.kernels.sparse import SparsePattern
from zoo.attention.layers import DecoderBlock, DecoderState, EncoderBlock, FeedForward, PostNorm, PreNorm
from zoo.attention.memory import Memory
from zoo.attention.mixers.attention_free import AttentionFree, AttentionFreeSimple
from zoo.attention.mixers.sequence import DilatedConvolution, FourierMixer, GatedRecurrent, Mixer, MixerState
from zoo.attention.mixers.state_space import SelectiveStateSpace, StateSpace
from zoo.attention.normalisers.gaussian import Gaussian
from zoo.attention.normalisers.hard import HardReinforce, HardStraightThrough, log_probability
from zoo.attention.normalisers.monotonic import Monotonic, MonotonicChunkwise
from zoo.attention.normalisers.soft import Degree, SmoothedSigmoid, Softmax, Uniform
from zoo.attention.normalisers.sparsemax import Entmax15, Sparsemax
from zoo.attention.normalisers.unnormalised import Unnormalised
from zoo.attention.observing.attention_map import AttentionMap
from zoo.attention.observing.blockwise import Attended, blockwise, weights_between
from zoo.attention.observing.record import Recording, Tap, record, sites
from zoo.attention.observing.views import Entropy, Pooled, Rows, TopK
from zoo.attention.penalties import (
    Amount,
    Coverage,
    DoublyStochastic,
    EntropyPenalty,
    GuidanceCrossEntropy,
    GuidanceSquared,
    HeadDisagreement,
    Locality,
    Passing,
)
from zoo.attention.pooling import LatentPooling, Pooling
from zoo.attention.positions.embeddings import Learned, Learned2D, Sinusoidal, Sinusoidal2D
from zoo.attention.positions.relative import ALiBi, Position, RelativeBias2D, Shaw, T5Bias, TransformerXL
from zoo.attention.positions.rotary import Interpolated, NTKAware, Rotary, YaRN
from zoo.attention.scores.activation_unit import ActivationUnit, Dice
from zoo.attention.scores.decoding import CoverageAware, LocationAware, TwoScores
from zoo.attention.scores.pairwise import (
    GAT,
    Additive,
    Concat,
    Constant,
    Cosine,
    Dot,
    GATv2,
    General,
    NormalisedAdditive,
    PositionAware,
    ScaledDot,
)
from zoo.attention.self_attention import MixerFactory, self_attention
from zoo.attention.source import NoAttention, SourceAttention
from zoo.attention.state import Aligned, AttentionState, LinearState
from zoo.attention.supports.blocks import BlockSupport
from zoo.attention.supports.dense import DenseSupport
from zoo.attention.supports.edges import EdgeSupport
from zoo.attention.supports.local import LocalM, LocalP, LocalSupport
from zoo.attention.supports.support import Support
from zoo.attention.supports.windows import BigBird, ShiftedWindows, SlidingWindow
from zoo.attention.target import TargetAttention
from zoo.attention.weightless.linear import LinearAttention
from zoo.attention.weightless.linformer import Linformer
from zoo.attention.weightless.performer import Performer

__all__ = [
    "CBAM",
    "GAT",
    "ALiBi",
    "ActivationUnit",
    "Additive",
    "Affinity",
    "Aligned",
    "AlternatingCoAttention",
    "Amount",
    "Attend",
    "AttendFactory",
    "Attended",
    "AttentionFlow",
    "AttentionFree",
    "AttentionFreeSimple",
    "AttentionMap",
    "AttentionState",
    "BigBird",
    "BlockSupport",
    "ChannelGate",
    "CoAttention",
    "Concat",
    "Constant",
    "Cosine",
    "Coverage",
    "CoverageAware",
    "DecoderBlock",
    "DecoderState",
    "Degree",
    "DenseSupport",
    "Dice",
    "DilatedConvolution",
    "Dot",
    "DoublyStochastic",
    "DropWeights",
    "EdgeSupport",
    "EfficientChannel",
    "EncoderBlock",
    "Entmax15",
    "Entropy",
    "EntropyPenalty",
    "FeedForward",
    "FourierMixer",
    "GATv2",
    "GatedRecurrent",
    "Gaussian",
    "General",
    "GuidanceCrossEntropy",
    "GuidanceSquared",
    "HardReinforce",
    "HardStraightThrough",
    "HeadDisagreement",
    "Interpolated",
    "KeyDropout",
    "LatentPooling",
    "Learned",
    "Learned2D",
    "LinearAttention",
    "LinearState",
    "Linformer",
    "LocalM",
    "LocalP",
    "LocalSupport",
    "Locality",
    "LocationAware",
    "Memory",
    "Mixer",
    "MixerFactory",
    "MixerState",
    "Monotonic",
    "MonotonicChunkwise",
    "MultiHead",
    "NTKAware",
    "NoAttention",
    "NormalisedAdditive",
    "Normaliser",
    "Passing",
    "Performer",
    "Pooled",
    "Pooling",
    "Position",
    "PositionAware",
    "PostNorm",
    "PreNorm",
    "Recording",
    "RelativeBias2D",
    "RenormalisedDropout",
    "Rotary",
    "Rows",
    "ScaledDot",
    "Score",
    "SelectiveStateSpace",
    "Shaw",
    "ShiftedWindows",
    "Sinusoidal",
    "Sinusoidal2D",
    "SiteFactory",
    "SlidingWindow",
    "SmoothedSigmoid",
    "Softmax",
    "SourceAttention",
    "SparsePattern",
    "Sparsemax",
    "SpatialGate",
    "SqueezeExcitation",
    "StateSpace",
    "Support",
    "T5Bias",
    "Tap",
    "TargetAttention",
    "TopK",
    "TransformerXL",
    "TwoScores",
    "TwoWayAttention",
    "Uniform",
    "Unnormalised",
    "YaRN",
    "blockwise",
    "dropout",
    "efficient_kernel",
    "linear_recurrence",
    "log_probability",
    "record",
    "self_attention",
    "sites",
    "weights_between",
]
