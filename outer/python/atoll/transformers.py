# SPDX-License-Identifier: Apache-2.0
"""The outer loop as a callback of Hugging Face's Trainer: Trainer(..., callbacks=[OuterLoopCallback("run.yaml", settings)])."""
import os

from transformers import TrainerCallback

from .torch import OuterLoop


def _checkpoints(output_dir):
    """(step, path) of each of the Trainer's checkpoints."""
    names = os.listdir(output_dir) if os.path.isdir(output_dir) else []
    return [(int(name.split("-")[1]), os.path.join(output_dir, name)) for name in names
            if name.startswith("checkpoint-") and name.split("-")[1].isdigit()]


class OuterLoopCallback(TrainerCallback):
    """max_steps of the arguments must be train.steps of the run. The Trainer's checkpoints are the site's: with resume_from_checkpoint
    it continues from the newest one. digest: of the outer state, once the training has ended."""

    def __init__(self, config, settings=None, log=None):
        self._arguments = (config, settings)
        self._log = log
        self._outer = None
        self.digest = ""

    @staticmethod
    def last_checkpoint(output_dir):
        """The newest checkpoint of the Trainer that is whole, for resume_from_checkpoint; None: there is none. A killed process may
        leave one that is not: the Trainer writes trainer_state.json last."""
        whole = [(step, path) for step, path in _checkpoints(output_dir) if os.path.exists(os.path.join(path, "trainer_state.json"))]
        return max(whole)[1] if whole else None

    def on_train_begin(self, args, state, control, model=None, **_):
        self._outer = OuterLoop(model, *self._arguments, log=self._log,
                                state={"step": state.global_step} if state.global_step else None)
        if state.max_steps != self._outer.steps:
            raise ValueError(f"max_steps = {state.max_steps}, and train.steps of the run is {self._outer.steps}")
        state.global_step = self._outer.steps_done

    def on_step_end(self, args, state, control, **_):
        self._outer.step(state.log_history[-1].get("loss") if state.log_history else None)
        state.global_step = self._outer.steps_done
        control.should_training_stop |= not self._outer.running
        if control.should_save:
            self._outer.site.saving(state.global_step)

    def on_save(self, args, state, control, **_):
        self._outer.site.saved(min((step for step, _ in _checkpoints(args.output_dir)), default=state.global_step))

    def on_train_end(self, args, state, control, **_):
        self.digest = self._outer.digest
        self._outer.close()
