# SPDX-License-Identifier: Apache-2.0
"""Atoll in Python: take part in a run of several datacenters as one site, with any trainer.

`atoll.Site` is libatoll (outer/library/atoll.h) by ctypes; `atoll.torch.OuterLoop` is the same for a PyTorch trainer; `atoll.data` makes
shards and `atoll.metrics` reads records. libatoll is loaded when one of the names below is first used.
"""
__all__ = ["Error", "Place", "Site", "Status", "Stopped", "Tensor", "__version__", "tensors"]


def __getattr__(name):
    if name not in __all__:
        raise AttributeError(f"module 'atoll' has no attribute '{name}'")
    from . import _library
    return getattr(_library, name)
