"""Associative recall: the answer to a question is the value of the one fact whose key is asked for."""

from zoo.extend import exports

__getattr__, __all__ = exports(
    __name__,
    {"data": ["RecallData", "fact_table", "planted_facts"], "net": ["Distance", "RecallNet"], "task": ["Recall"]},
)
