# SPDX-License-Identifier: Apache-2.0
"""The outer loop as a callback of Lightning: Trainer(callbacks=[OuterLoopCallback("run.yaml", settings)])."""
from lightning.pytorch.callbacks import Callback

from .torch import OuterLoop


class OuterLoopCallback(Callback):
    """A step is a step of the optimizer: gradients may be accumulated. The state goes into Lightning's checkpoints; with ckpt_path
    of fit() it continues from the newest one. digest: of the outer state, once the training has ended."""

    def __init__(self, config, settings=None, log=None):
        self._arguments = (config, settings)
        self._log = log
        self._state = None
        self._saving = False
        self.outer = None
        self.digest = ""

    def load_state_dict(self, state):
        self._state = state

    def state_dict(self):
        """Lightning asks for it when it writes a checkpoint."""
        if self.outer:
            self.outer.site.saving(self.outer.steps_done)
            self._saving = True
        return self.outer.state_dict() if self.outer else self._state or {}

    def on_train_start(self, trainer, module):
        self.outer = OuterLoop(module, *self._arguments, state=self._state, log=self._log)

    def on_train_batch_end(self, trainer, module, outputs, batch, batch_idx):
        if self._saving:  # the checkpoint before this step is written
            self.outer.site.saved(self.outer.steps_done)
            self._saving = False
        if trainer.global_step > self.outer.steps_done:
            self.outer.step(outputs["loss"] if isinstance(outputs, dict) else outputs)
        trainer.should_stop |= not self.outer.running

    def on_train_end(self, trainer, module):
        self.digest = self.outer.digest
        self.outer.close()
        self.outer = None
