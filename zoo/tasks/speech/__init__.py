"""Speech: what was said in a recording, and when."""

from zoo.lazy_exports import exports

__getattr__, __all__ = exports(
    __name__,
    {
        "data.augmentation": ["Augmentation"],
        "data.features": ["Features"],
        "data.sources": ["audio_manifest", "fsdd", "fsdd_strings", "librispeech", "planted_tones", "speech_commands"],
        "data.speech_data": ["SpeechData"],
        "nets.listen_attend_spell": ["ListenAttendSpell"],
        "nets.listeners": ["ConvolutionalListener", "PyramidalListener", "TransformerListener"],
        "recogniser": ["Recogniser"],
    },
)
