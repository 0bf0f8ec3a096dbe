# SPDX-License-Identifier: Apache-2.0
"""Golden values of a small Llama: losses, logits, gradients, ten steps of AdamW.

The network is transformers' LlamaForCausalLM and the gradients are autograd's, both in float64; batches, schedule and
AdamW are those of ../gpt/make.py. The package makes the angles of its rotary positions in float32 with any model
type; here they are made in float64, and the script ends in how far its own losses are from these (about 1e-7). LAMB is not
here: its trust ratio is of a tensor, and Atoll's q, k, v are one.

    python3 tests/golden/llama/make.py        writes next to this file; needs torch and transformers
"""
import importlib.util
import os
import torch
from safetensors.torch import save_file
from transformers import LlamaConfig, LlamaForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
spec = importlib.util.spec_from_file_location("gpt", os.path.join(HERE, "..", "gpt", "make.py"))
gpt = importlib.util.module_from_spec(spec)
spec.loader.exec_module(gpt)
KVH, F, THETA, NORM_EPS = 2, 40, 100.0, 1e-3


class Angles(torch.nn.Module):
    """Su et al. 2021, in float64; the halves of a head are the pairs, as LlamaAttention turns them."""

    def forward(self, x, position_ids):
        hd = gpt.C // 4
        step = THETA ** (-torch.arange(0, hd, 2, dtype=torch.float64) / hd)
        angle = position_ids[..., None].double() * step
        angle = torch.cat((angle, angle), dim=-1)
        return angle.cos().to(x.dtype), angle.sin().to(x.dtype)


def make_model():
    torch.manual_seed(gpt.SEED)
    config = LlamaConfig(vocab_size=gpt.V, hidden_size=gpt.C, intermediate_size=F, num_hidden_layers=gpt.L,
                         num_attention_heads=4, num_key_value_heads=KVH, max_position_embeddings=gpt.T,
                         rms_norm_eps=NORM_EPS, rope_parameters={"rope_type": "default", "rope_theta": THETA},
                         tie_word_embeddings=False, attn_implementation="eager")
    model = LlamaForCausalLM(config).float().eval()
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(p + 0.1 * torch.randn_like(p))
    start = {k: v.clone() for k, v in gpt.tensors(model).items()}
    model = model.double()
    theirs = gpt.losses(model, 0)[0].detach()
    model.model.rotary_emb = Angles()
    difference = (gpt.losses(model, 0)[0].detach() - theirs).abs().max().item()
    assert 0 < difference < 1e-6, difference
    return model, start, difference


def main():
    gpt.HERE, gpt.make_model = HERE, lambda: make_model()[:2]
    model, start, difference = make_model()
    save_file(start, os.path.join(HERE, "model.safetensors"), metadata={"format": "pt"})
    each, logits = gpt.losses(model, 0)
    each.mean().backward()
    gradients = {k: p.grad.float().contiguous() for k, p in model.named_parameters()}
    save_file(gradients, os.path.join(HERE, "gradients.safetensors"), metadata={"format": "pt"})
    with open(os.path.join(HERE, "values.txt"), "w") as out:
        for step in range(gpt.STEPS):
            x, y = gpt.batch(step)
            gpt.line(out, f"tokens{step}", x.reshape(-1).tolist())
            gpt.line(out, f"targets{step}", y.reshape(-1).tolist())
        gpt.line(out, "losses", each.tolist())
        gpt.line(out, "logits", logits[:, -1].reshape(-1).tolist())
        seen, norms = gpt.train("adamw")
        gpt.line(out, "adamw_losses", seen)
        gpt.line(out, "adamw_norms", norms)
    print("torch", torch.__version__, "; the package's own angles change a loss by at most", difference)


if __name__ == "__main__":
    main()
