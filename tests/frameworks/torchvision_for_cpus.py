"""Makes PyPI's torchvision, built for CUDA, importable beside a torch for CPUs.

It lacks operators there, which open_clip does not use, and fails as it describes them to torch.
"""

import sys
import types

NAME = "torchvision._meta_registrations"
sys.modules[NAME] = types.ModuleType(NAME)
