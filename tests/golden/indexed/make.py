# SPDX-License-Identifier: Apache-2.0
"""Writes u16.{bin,idx} and i32.{bin,idx} with Megatron-LM's own IndexedDatasetBuilder and reads them back with its IndexedDataset.

    pip install megatron-core torch numpy && python make.py [DIR]
"""
import importlib.machinery
import importlib.util
import os
import sys
import types

import numpy as np
import torch

# indexed_dataset.py alone: the packages around it want libraries of GPUs and are left out.
spec = importlib.machinery.PathFinder.find_spec("megatron", [os.path.abspath(p) for p in sys.path])
path = os.path.join(list(spec.submodule_search_locations)[0], "core", "datasets", "indexed_dataset.py")


class Left(types.ModuleType):
    __file__ = ""
    __path__ = []

    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **options: False


for name in ("megatron", "megatron.core", "megatron.core.datasets", "megatron.core.utils", "megatron.core.msc_utils",
             "megatron.core.datasets.object_storage_utils", "megatron.core.datasets.utils_s3"):
    sys.modules[name] = Left(name)
sys.modules["megatron.core.msc_utils"].MultiStorageClientFeature = types.SimpleNamespace(is_enabled=lambda: False)
spec = importlib.util.spec_from_file_location("indexed_dataset", path)
module = importlib.util.module_from_spec(spec)
spec.loader.exec_module(module)

# Documents of sentences; id j of sentence i is (31 i + 7 j) modulo the vocabulary.
LENGTHS = [[3, 1, 5], [2], [4, 4]]
out = sys.argv[1] if len(sys.argv) > 1 else os.path.dirname(os.path.abspath(__file__))
for name, dtype, vocab in (("u16", np.uint16, 251), ("i32", np.int32, 100003)):
    stem = os.path.join(out, name)
    builder = module.IndexedDatasetBuilder(stem + ".bin", dtype=dtype)
    assert module.DType.optimal_dtype(vocab) == dtype
    i = 0
    for document in LENGTHS:
        for length in document:
            builder.add_item(torch.tensor([(31 * i + 7 * j + (vocab > 65536) * 70000) % vocab for j in range(length)]))
            i += 1
        builder.end_document()
    builder.finalize(stem + ".idx")
    data = module.IndexedDataset(stem)
    print(name, "sequences", len(data), "documents", data.document_indices.tolist(), "lengths", data.sequence_lengths.tolist())
