"""From a loss to a step: windows, scaling, clipping, optimizers, schedulers."""
