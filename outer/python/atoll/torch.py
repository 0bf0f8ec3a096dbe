# SPDX-License-Identifier: Apache-2.0
"""An outer loop for PyTorch trainers: one object, and one line after optimizer.step().

    outer = OuterLoop(model, "run.yaml", {"site.name": "b", "run.dir": "b"}, state=checkpoint.get("outer"))
    while outer.running:
        loss = ...; loss.backward(); optimizer.step(); optimizer.zero_grad()
        outer.step(loss)
    outer.close()

The model is a plain module, DistributedDataParallel, FSDP2 (fully_shard) or compiled; parameters are f32, or lower precision, in
which what a merge changes is rounded. Buffers and the optimizer's state stay the site's own.
"""
import contextlib
import json
import math

import torch
import torch.distributed as dist

from . import _library

try:
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset
except ImportError:  # an older PyTorch: no sharded parameters
    DTensor = ()

_ADVICE = ("model.* of the configuration (layers, width, vocab, tied, ..), or the file of model.tensors, must describe this model; "
           "atoll.tensors(config) lists what the run has")
_WRAPPERS = ("module.", "_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")


def _plain(name):
    """The parameter's name without what DDP, compile and checkpointing put into it."""
    for wrapper in _WRAPPERS:
        name = name.replace("." + wrapper, ".")
        while name.startswith(wrapper):
            name = name[len(wrapper):]
    return name


def parameters_of(model):
    """{name: parameter}, a tied one once, in the model's order."""
    if not isinstance(model, torch.nn.Module):
        raise _library.Error(f"a torch.nn.Module is wanted, and this is {type(model).__name__}", 4)
    found = {_plain(name): parameter for name, parameter in model.named_parameters()}
    for name, p in found.items():
        if p.requires_grad and (p.dtype not in (torch.float32, torch.bfloat16) or not p.numel()):
            raise _library.Error(f"parameter {name} is {p.dtype} with {p.numel()} values: f32 or bf16, and at least one value, can be "
                                 "exchanged; requires_grad_(False) keeps it out", 4)
    return found


def write_table(model, path):
    """Writes the file of model.tensors for a model that Atoll does not have: every parameter that is trained (requires_grad). All sites
    and the aggregator need this one file. The run starts from values that are drawn from run.seed: zeros or ones where a parameter has
    nothing else now, else normal with its standard deviation. write_values() and run.init_from start from the model's own values."""
    def entry(name, p):
        values = (p.full_tensor() if isinstance(p, DTensor) else p).detach().float()
        row = {"name": name, "shape": list(p.shape)}
        deviation = float(values.std(correction=0)) if values.numel() > 1 else 0.0
        if deviation > 0:
            row.update(init="normal", std=float(f"{deviation:.3g}"))
        elif float(values.flatten()[0]) == 1:
            row.update(init="one")
        numbers = [int(part) for part in name.split(".") if part.isdigit()]
        return {**row, "layer": numbers[0]} if numbers else row

    rows = [entry(name, p) for name, p in parameters_of(model).items() if p.requires_grad]
    with open(path, "w") as file:
        json.dump({"tensors": rows}, file, indent=0)


def write_values(model, config, path, settings=None):
    """Writes the model's parameters, under the names of the run's tensors, as the safetensors file of run.init_from: all sites and the
    aggregator then start from them. Pretrained values come into a run this way."""
    if not str(path).endswith(".safetensors"):
        raise _library.Error(f"{path}: the name must end in .safetensors, by which run.init_from knows it", 4)
    table = _library.tensors(config, settings)
    values = _Values(table, parameters_of(model))
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for t in table:
        size = 4 * math.prod(t.shape)
        header[t.name] = {"dtype": "F32", "shape": list(t.shape), "data_offsets": [at, at + size]}
        at += size
    words = json.dumps(header).encode()
    words += b" " * (-len(words) % 8)
    with open(path, "wb") as file:
        file.write(len(words).to_bytes(8, "little") + words)
        for number, t in enumerate(table):
            piece = bytearray(4 * math.prod(t.shape))
            values.read(number, 0, math.prod(t.shape), piece)
            file.write(piece)


class _Part:
    """Rows first .. first + rows of a tensor of the run: a parameter, or its transpose."""

    def __init__(self, parameter, first, rows, transposed):
        self.parameter, self.first, self.rows, self.transposed = parameter, first, rows, transposed

    def _matrix(self, tensor, columns):
        return tensor.t() if self.transposed else tensor.reshape(-1, columns)

    def full(self, cache):
        """All values. Of a sharded parameter: a collective."""
        if not isinstance(self.parameter, DTensor):
            return self.parameter.detach()
        if cache.get("of") is not self.parameter:
            cache.update(of=self.parameter, full=self.parameter.detach().full_tensor())
        return cache["full"]

    def read(self, cache, columns):
        return self._matrix(self.full(cache), columns)

    def local(self, columns):
        """What this process holds, as a matrix, and which row of the tensor its first one is. Of a parameter in another memory format,
        such as channels_last, the matrix is a copy: put_back()."""
        p = self.parameter.detach()
        if not isinstance(p, DTensor):
            return self._matrix(p, columns), 0
        shape, offset = compute_local_shape_and_global_offset(p.shape, p.device_mesh, p.placements)
        if self.transposed or any(s != g for s, g in zip(shape[1:], p.shape[1:])):
            raise _library.Error("a parameter is sharded on another dimension than the first, or transposed as well", 4)
        return p.to_local().view(-1, columns) if math.prod(shape) else None, offset[0] if shape else 0

    def put_back(self, matrix):
        p = self.parameter.detach()
        if not (self.transposed or p.is_contiguous()):
            p.copy_(matrix.view(p.shape))


def _blocks(first, count, columns):
    """The flat range first .. first + count of a matrix, as (row, rows, column, columns), in order."""
    end = first + count
    while first < end:
        row, column = divmod(first, columns)
        if column or end - first < columns:
            n = min(columns - column, end - first)
            yield row, 1, column, n
        else:
            n = (end - first) // columns * columns
            yield row, n // columns, 0, columns
        first += n


class _Values:
    """The run's tensors as a model's parameters."""

    def __init__(self, table, parameters):
        self.columns = [math.prod(t.shape[1:]) for t in table]
        self.parts = [self._parts_of(t, parameters) for t in table]
        self.cache = {}
        used = {id(part.parameter) for parts in self.parts for part in parts}
        left = [name for name, p in parameters.items() if id(p) not in used and p.requires_grad]
        if left:
            more = f", nor are {len(left) - 1} more" if len(left) > 1 else ""
            raise _library.Error(f"parameter {left[0]} of the model is no tensor of the run{more}: {_ADVICE}", 4)

    @staticmethod
    def _find(parameters, name):
        """The parameter of this name, which the model may have with or without the family's prefix."""
        if name in parameters:
            return parameters[name]
        short = name.split(".", 1)[-1]
        ends = [n for n in parameters if n.endswith("." + name) or n == short]
        return parameters[ends[0]] if len(ends) == 1 else None

    @classmethod
    def _parts_of(cls, tensor, parameters):
        columns = math.prod(tensor.shape[1:])
        own = parameters.get(tensor.name)
        if own is not None and own.numel() != math.prod(tensor.shape):
            raise _library.Error(f"parameter {tensor.name} has shape {tuple(own.shape)}, and {tensor.shape} in the run: {_ADVICE}", 4)
        if own is not None:
            return [_Part(own, 0, tensor.shape[0] if tensor.shape else 1, False)]
        parts = []
        for place in tensor.places:
            p = cls._find(parameters, place.name)
            if p is None:
                raise _library.Error(f"tensor {tensor.name} of the run: the model has no parameter {place.name}: {_ADVICE}", 4)
            if p.numel() != place.rows * columns or (place.transposed and tuple(p.shape) != (columns, place.rows)):
                shape = (columns, place.rows) if place.transposed else (place.rows, columns)
                raise _library.Error(f"parameter {place.name} has shape {tuple(p.shape)}, and {shape} in the run: {_ADVICE}", 4)
            parts.append(_Part(p, place.first, place.rows, place.transposed))
        if not parts:
            raise _library.Error(f"tensor {tensor.name} {tensor.shape} of the run: the model has no such parameter: {_ADVICE}", 4)
        return parts

    def _each(self, number, first, count):
        """(part, its row, rows, column, columns, place in the values) of a range of a tensor."""
        columns = self.columns[number]
        for part in self.parts[number]:
            begin = max(first, part.first * columns)
            end = min(first + count, (part.first + part.rows) * columns)
            at = begin - first
            for row, rows, column, n in _blocks(begin - part.first * columns, max(0, end - begin), columns):
                yield part, row, rows, column, n, at
                at += rows * n

    @torch.no_grad()
    def read(self, number, first, count, values):
        out = torch.frombuffer(values, dtype=torch.float32)
        for part, row, rows, column, n, at in self._each(number, first, count):
            source = part.read(self.cache, self.columns[number])
            out[at:at + rows * n].view(rows, n).copy_(source[row:row + rows, column:column + n])

    @torch.no_grad()
    def write(self, number, first, count, values):
        self.cache.clear()
        new = torch.frombuffer(values, dtype=torch.float32)
        for part, row, rows, column, n, at in self._each(number, first, count):
            target, offset = part.local(self.columns[number])
            if target is None:
                continue
            begin, end = max(row, offset), min(row + rows, offset + target.shape[0])
            if begin < end:
                block = new[at:at + rows * n].view(rows, n)[begin - row:end - row]
                target[begin - offset:end - offset, column:column + n].copy_(block)
                part.put_back(target)


def _broadcast(group):
    """Bytes of rank 0 to all ranks of the group, on the memory that its backend takes."""
    root = dist.get_global_rank(group, 0) if group else 0
    device = "cuda" if "nccl" in str(dist.get_backend(group)) else "cpu"

    def broadcast(buffer):
        here = torch.frombuffer(buffer, dtype=torch.uint8)
        there = here if device == "cpu" else here.to(device)
        dist.broadcast(there, root, group=group)
        if there is not here:
            here.copy_(there)
    return broadcast


class OuterLoop:
    """config: the run's configuration, a path or its text. settings: {"site.name": .., "run.dir": ..}, in place of what it has.
    state: state_dict() of the checkpoint whose parameters the model has; None: the model gets those that the run starts from.
    group: the process group of the site's ranks (None: all). log(level, line): what libatoll has to say.

    Raises atoll.Error, whose text says what is wrong and what to do. Ctrl-C, and stop(), end a wait with atoll.Stopped: save a
    checkpoint and close.
    """

    def __init__(self, model, config, settings=None, *, state=None, group=None, log=None):
        step = state.get("step") if isinstance(state, dict) else None
        if state is not None and not isinstance(step, int):
            raise _library.Error("state is not what state_dict() of an OuterLoop was", 4)
        self._looking = False
        self._parameters = parameters_of(model)
        table = _library.tensors(config, settings)
        self._values = _Values(table, self._parameters)
        ranks = dist.get_world_size(group) if dist.is_available() and dist.is_initialized() else 1
        self.site = _library.Site(config, table, self._values.read, self._values.write, settings,
                                  rank=dist.get_rank(group) if ranks > 1 else 0, ranks=ranks,
                                  broadcast=_broadcast(group) if ranks > 1 else None, log=log)
        try:
            self.site.start(step or 0)
        except BaseException:
            self.site.close()
            raise

    @property
    def steps_done(self):
        return self.site.step

    @property
    def steps(self):
        """train.steps of the run."""
        return self.site.steps

    @property
    def running(self):
        return self.site.step < self.site.steps

    def step(self, loss=None, tokens_per_second=math.nan):
        """After optimizer.step(). loss: a number or a tensor, which is looked at only where a round is due."""
        if self._looking:
            raise _library.Error("step() inside outer_parameters(): the model has the outer parameters, not those that were trained", 4)
        step = self.site.step + 1
        known = loss is not None and self.site.due(step)
        self.site.made(step, float(loss.detach() if isinstance(loss, torch.Tensor) else loss) if known else math.nan,
                       tokens_per_second)

    def state_dict(self):
        """For the trainer's checkpoint, in addition to model and optimizer."""
        return {"step": self.site.step}

    @contextlib.contextmanager
    def saving(self, oldest=None):
        """Around the writing of a checkpoint. oldest: the step of the oldest checkpoint that is kept then; None: this one."""
        self.site.saving(self.site.step)
        yield
        self.site.saved(self.site.step if oldest is None else oldest)

    @contextlib.contextmanager
    def outer_parameters(self):
        """Inside, the model has the parameters that all sites share, to evaluate or export them. Buffers, such as the statistics of a
        batch norm, stay this site's."""
        kept = {name: p.detach().clone() for name, p in self._parameters.items()}
        self._looking = True
        try:
            self.site.outer(self.site.step)
            yield
        finally:
            self._looking = False
            with torch.no_grad():
                for name, p in self._parameters.items():
                    p.copy_(kept[name])

    @property
    def status(self):
        return self.site.status

    @property
    def digest(self):
        return self.site.digest

    def stop(self):
        self.site.stop()

    def close(self):
        self.site.close()

    def __enter__(self):
        return self

    def __exit__(self, *raised):
        return self.site.__exit__(*raised)
