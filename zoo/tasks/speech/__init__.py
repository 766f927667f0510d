"""Speech: what was said in a recording, and when."""

from zoo.lazy_exports import exports

__getattr__, __all__ = exports(
    __name__,
    {
        "data.augmentation": ["Augmentation"],
        "data.features": ["Features"],
        "datasets": ["audio_manifest", "fsdd", "fsdd_strings", "librispeech", "planted_tones", "speech_commands"],
        "datamodule": ["SpeechData"],
        "models.listen_attend_spell": ["ListenAttendSpell"],
        "models.encoders": ["ConvRNNEncoder", "PyramidalRNNEncoder", "TransformerSpeechEncoder"],
        "task": ["Recogniser"],
    },
)
