"""The attention core: every mechanism, `Attention` to combine them, and `record` to observe them."""

from typing import TYPE_CHECKING

from zoo.lazy_exports import import_lazily

if TYPE_CHECKING:
    from zoo.attention.attention import Attention, attention_weights, dot_product_attention
    from zoo.attention.attention_state import AttentionState, LinearState, NormalizerOutput
    from zoo.attention.coattention import Affinity, AlternatingCoAttention, AttentionFlow, CoAttention, TwoWayAttention
    from zoo.attention.cross_attention import CrossAttention, NoAttention
    from zoo.attention.dropout import DropWeights, KeyDropout, RenormalizedDropout
    from zoo.attention.factories import AttentionFactory, MechanismFactory
    from zoo.attention.gates import (
        CBAM,
        ChannelGate,
        EfficientChannel,
        SpatialGate,
        SqueezeExcitation,
        efficient_kernel,
    )
    from zoo.attention.kernels.scan import linear_recurrence
    from zoo.attention.kernels.sparse import SparsePattern
    from zoo.attention.kv_cache import KVCache
    from zoo.attention.linear.kernel_attention import LinearAttention
    from zoo.attention.linear.linformer import Linformer
    from zoo.attention.linear.performer import Performer
    from zoo.attention.mechanism import (
        Normalizer,
        Position,
        PreparedKeys,
        Restriction,
        Score,
        Traits,
        Use,
        check,
    )
    from zoo.attention.mixer_factory import MixerFactory, self_attention
    from zoo.attention.mixers.attention_free import AttentionFree, AttentionFreeSimple
    from zoo.attention.mixers.sequence import DilatedConvolution, FourierMixer, GatedRecurrent, Mixer, MixerState
    from zoo.attention.mixers.state_space import SelectiveStateSpace, StateSpace
    from zoo.attention.multihead import MultiheadAttention
    from zoo.attention.normalizers.gaussian import Gaussian
    from zoo.attention.normalizers.hard import HardReinforce, HardStraightThrough, log_probability
    from zoo.attention.normalizers.identity import Unnormalized
    from zoo.attention.normalizers.monotonic import Monotonic, MonotonicChunkwise
    from zoo.attention.normalizers.soft import Degree, SmoothedSigmoid, Softmax, Uniform
    from zoo.attention.normalizers.sparsemax import Entmax15, Sparsemax
    from zoo.attention.penalties import (
        Coverage,
        DoublyStochastic,
        EntropyPenalty,
        GuidanceCrossEntropy,
        GuidanceSquared,
        HeadSimilarity,
        Locality,
        NoStopPenalty,
        PenaltySum,
    )
    from zoo.attention.pooling import LatentPooling, Pooling
    from zoo.attention.positions.embeddings import Learned, Learned2D, Sinusoidal, Sinusoidal2D
    from zoo.attention.positions.relative import ALiBi, RelativeBias2D, Shaw, T5Bias, TransformerXL
    from zoo.attention.positions.rotary import Interpolated, NTKAware, Rotary, YaRN
    from zoo.attention.recording.attention_map import AttentionMap
    from zoo.attention.recording.recorder import AttentionProbe, Recording, record, sites
    from zoo.attention.recording.reductions import Entropy, Pooled, Rows, TopK
    from zoo.attention.scores.activation_unit import ActivationUnit, Dice
    from zoo.attention.scores.pairwise import (
        GAT,
        Additive,
        Concat,
        Constant,
        Cosine,
        Dot,
        GATv2,
        General,
        NormalizedAdditive,
        PositionAware,
        ScaledDot,
    )
    from zoo.attention.scores.stateful import CoverageAware, LocationAware, ScorePair
    from zoo.attention.site import AttentionSite
    from zoo.attention.supports.blocks import BlockSupport
    from zoo.attention.supports.dense import DenseSupport
    from zoo.attention.supports.edges import EdgeSupport
    from zoo.attention.supports.local import LocalM, LocalP, LocalSupport
    from zoo.attention.supports.patterns import BigBird, ShiftedWindows, SlidingWindow
    from zoo.attention.supports.support import Support
    from zoo.attention.target_attention import TargetAttention
    from zoo.attention.transformer import DecoderBlock, DecoderState, EncoderBlock, FeedForward, PostNorm, PreNorm
else:
    __getattr__ = import_lazily(__name__, __file__)

__all__ = [
    "CBAM",
    "GAT",
    "ALiBi",
    "ActivationUnit",
    "Additive",
    "Affinity",
    "AlternatingCoAttention",
    "Attention",
    "AttentionFactory",
    "AttentionFlow",
    "AttentionFree",
    "AttentionFreeSimple",
    "AttentionMap",
    "AttentionProbe",
    "AttentionSite",
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
    "CrossAttention",
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
    "HeadSimilarity",
    "Interpolated",
    "KVCache",
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
    "MechanismFactory",
    "Mixer",
    "MixerFactory",
    "MixerState",
    "Monotonic",
    "MonotonicChunkwise",
    "MultiheadAttention",
    "NTKAware",
    "NoAttention",
    "NoStopPenalty",
    "NormalizedAdditive",
    "Normalizer",
    "NormalizerOutput",
    "PenaltySum",
    "Performer",
    "Pooled",
    "Pooling",
    "Position",
    "PositionAware",
    "PostNorm",
    "PreNorm",
    "PreparedKeys",
    "Recording",
    "RelativeBias2D",
    "RenormalizedDropout",
    "Restriction",
    "Rotary",
    "Rows",
    "ScaledDot",
    "Score",
    "ScorePair",
    "SelectiveStateSpace",
    "Shaw",
    "ShiftedWindows",
    "Sinusoidal",
    "Sinusoidal2D",
    "SlidingWindow",
    "SmoothedSigmoid",
    "Softmax",
    "SparsePattern",
    "Sparsemax",
    "SpatialGate",
    "SqueezeExcitation",
    "StateSpace",
    "Support",
    "T5Bias",
    "TargetAttention",
    "TopK",
    "Traits",
    "TransformerXL",
    "TwoWayAttention",
    "Uniform",
    "Unnormalized",
    "Use",
    "YaRN",
    "attention_weights",
    "check",
    "dot_product_attention",
    "efficient_kernel",
    "linear_recurrence",
    "log_probability",
    "record",
    "self_attention",
    "sites",
]
