"""How much Python work something takes: counted, so that nothing else on the machine matters."""

from bench.growth.counting import lines_of as work_of

__all__ = ["work_of"]
