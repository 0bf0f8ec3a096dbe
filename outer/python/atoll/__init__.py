"""Atoll in Python: take part in a run of several datacenters as one site, with any trainer.

`atoll.Site` is libatoll (outer/library/atoll.h) by ctypes; `atoll.torch.OuterLoop` is the same for a PyTorch trainer.
"""
from ._library import Error, Place, Site, Status, Stopped, Tensor, __version__, tensors

__all__ = ["Error", "Place", "Site", "Status", "Stopped", "Tensor", "__version__", "tensors"]
