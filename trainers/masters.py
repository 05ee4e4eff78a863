"""AdamW over float32 masters of parameters that may be held in bfloat16.

The module's parameters are what the forward pass and an engine in the same process read. Beside each one that is not
float32 stands a float32 master with the optimizer's state; gradients of the micro-batches are added up in float32, and
after a step the masters are copied into the parameters, in place. A float32 parameter is its own master.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from agentrl.errors import UsageError


class MasterAdamW:
    """Fused AdamW. Weight decay goes on matrices (two dimensions or more) only, not on norms and biases."""

    def __init__(
        self,
        parameters: Mapping[str, nn.Parameter],
        *,
        dtype: torch.dtype,
        betas: tuple[float, float],
        weight_decay: float,
        max_grad_norm: float,
    ) -> None:
        """Casts the parameters to `dtype`, in place; the masters keep what that would lose. `max_grad_norm` 0: no clipping."""
        self._parameters = {name: p for name, p in parameters.items() if p.requires_grad}
        if not self._parameters:
            raise ValueError("no parameter of the model requires a gradient; there is nothing to train")
        self._masters = {name: _master(p, dtype) for name, p in self._parameters.items()}
        self._by_id = {id(p): self._masters[name] for name, p in self._parameters.items()}
        self._max_grad_norm = max_grad_norm
        masters = self._masters.values()
        groups = [
            {"params": [m for m in masters if m.ndim >= 2], "weight_decay": weight_decay},
            {"params": [m for m in masters if m.ndim < 2], "weight_decay": 0.0},
        ]
        # lr is set at each step; eps as in every recipe for language models.
        self._adam = torch.optim.AdamW([g for g in groups if g["params"]], lr=0.0, betas=betas, eps=1e-8, fused=True)

    def holds(self, parameter: Tensor) -> bool:
        return id(parameter) in self._by_id

    def add_gradient(self, parameter: Tensor, gradient: Tensor) -> None:
        """Adds to the parameter's float32 gradient what autograd does not see."""
        master = self._by_id[id(parameter)]
        if master.grad is None:
            master.grad = gradient.to(torch.float32, copy=True)
        else:
            # A float32 copy first: adding bfloat16 to float32 directly takes several times as long on a CPU.
            master.grad.add_(gradient.float())

    def zero_grad(self) -> None:
        for master in self._masters.values():
            master.grad = None

    @torch.no_grad()
    def step(self, lr: float) -> float:
        """One update; the gradient is used up. Returns its global norm before clipping. Raises FloatingPointError when that
        is not finite; nothing is changed then. A parameter that no token reached has gradient 0."""
        gradients = [_gradient(master) for master in self._masters.values()]
        norm = torch.nn.utils.get_total_norm(gradients).item()
        if not math.isfinite(norm):
            bad = [name for name, master in self._masters.items() if not _gradient(master).isfinite().all()]
            self.zero_grad()
            raise FloatingPointError(
                f"the gradient is not finite (norm {norm}), first in {bad[0] if bad else 'the sum of all'}; "
                "the parameters are unchanged. A lower learning rate, or float32, may help"
            )
        if self._max_grad_norm and norm > self._max_grad_norm:
            torch._foreach_mul_(gradients, self._max_grad_norm / norm)
        for group in self._adam.param_groups:
            group["lr"] = lr
        self._adam.step()
        self.zero_grad()
        self._publish()
        return norm

    def save(self, folder: Path) -> None:
        """masters.safetensors and optimizer.pt: all that `load` needs to go on bit for bit."""
        save_file(
            {name: master.detach().contiguous() for name, master in self._masters.items()}, folder / "masters.safetensors"
        )
        with open(folder / "optimizer.pt", "wb") as file:  # torch's own writer hides why a disk refuses
            torch.save(self._adam.state_dict(), file)

    @torch.no_grad()
    def load(self, folder: Path) -> None:
        """Into the tensors that are there, so that who shares them sees it; all or none. Raises UsageError for another model's
        file."""
        stored = load_file(folder / "masters.safetensors")
        optimizer = torch.load(folder / "optimizer.pt", weights_only=True)
        if stored.keys() != self._masters.keys():
            odd = sorted(stored.keys() ^ self._masters.keys())
            raise UsageError(f"{folder} was saved from another model: {len(odd)} parameters differ, {odd[0]} for one")
        for name, master in self._masters.items():
            if stored[name].shape != master.shape:
                raise UsageError(f"{folder}: {name} is {tuple(stored[name].shape)}, this model's is {tuple(master.shape)}")
        for name, master in self._masters.items():
            master.copy_(stored[name])
        self._adam.load_state_dict(optimizer)
        self.zero_grad()
        self._publish()

    def move(self, device: torch.device) -> None:
        """Optimizer state and masters to a device. The parameters themselves stay where their readers expect them."""
        for name, master in self._masters.items():
            if master is not self._parameters[name]:
                master.data = master.data.to(device)
            state: dict[str, Any] = self._adam.state[master]  # {} before the first step
            for key, value in state.items():
                if isinstance(value, Tensor) and value.ndim:
                    state[key] = value.to(device)

    @torch.no_grad()
    def _publish(self) -> None:
        for name, parameter in self._parameters.items():
            if parameter is not self._masters[name]:
                parameter.copy_(self._masters[name])


def _gradient(master: Tensor) -> Tensor:
    if master.grad is None:
        master.grad = torch.zeros_like(master)
    return master.grad


def _master(parameter: nn.Parameter, dtype: torch.dtype) -> Tensor:
    """The parameter itself when it is to be float32; else a float32 copy that collects its gradients."""
    full = parameter.detach().to(torch.float32)
    parameter.data = parameter.data.to(dtype)
    if dtype == torch.float32:
        return parameter
    master = full.clone() if full.data_ptr() == parameter.data_ptr() else full

    def collect(p: Tensor) -> None:
        assert p.grad is not None
        gradient = p.grad.float()
        master.grad = gradient if master.grad is None else master.grad.add_(gradient)
        p.grad = None

    parameter.register_post_accumulate_grad_hook(collect)
    return master
