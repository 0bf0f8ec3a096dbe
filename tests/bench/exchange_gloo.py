# SPDX-License-Identifier: Apache-2.0
"""One rank of a two-rank gloo all-reduce, for bench_exchange: RANK ADDRESS PORT BYTES.

Rank 1 is told on stdin to go (one byte) and answers the seconds on stdout as a double; rank 0 follows.
"""
import os
import struct
import sys
import time

import torch
import torch.distributed as dist

rank, address, port, size = int(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4])
dist.init_process_group("gloo", init_method=f"tcp://{address}:{port}", rank=rank, world_size=2)
values = torch.ones(size // 4)
while rank == 0 or os.read(0, 1):
    start = time.monotonic()
    dist.all_reduce(values)
    if rank == 1:
        os.write(1, struct.pack("d", time.monotonic() - start))
