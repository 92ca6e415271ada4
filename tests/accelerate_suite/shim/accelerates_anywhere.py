"""A plugin of pytest: tests that ask for an accelerator run without one."""

from __future__ import annotations

import accelerate.test_utils.testing as helpers

helpers.require_non_cpu = lambda test: test
