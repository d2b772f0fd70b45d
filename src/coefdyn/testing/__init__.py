"""Contract tests for slots and tasks, ours and yours: each raises AssertionError with the reason.

    from coefdyn.testing import check_choice

    def test_my_readout():
        check_choice("readout", "my_readout", plugins=["my_package"])

A slot is checked against its traits, and in designs with other slots of this package: every form
must equal the loops of `mixer/definition.py` in value and in all gradients.
"""

from collections.abc import Sequence

from coefdyn.config.build import DESIGN_SLOTS, build_slot, build_task
from coefdyn.config.compose import compose
from coefdyn.testing.forms import SIZES, check_forms, companions
from coefdyn.testing.tasks import check_task
from coefdyn.testing.traits import check_traits

__all__ = ["SIZES", "check_choice", "check_forms", "check_slot", "check_task", "check_traits"]


def check_choice(group: str, name: str, plugins: Sequence[str] = ()) -> None:
    """Check a file of conf/; `group` is evolution, scaling, readout, normalization or task."""
    overrides = [f"plugins=[{','.join(plugins)}]"] if plugins else []
    if group == "task":
        check_task(build_task(compose([f"task={name}", "scale=smoke", *overrides])))
        return
    sizes = [f"model.{size}={value}" for size, value in SIZES.items()]
    config = compose([f"model/{group}={name}", *sizes, *overrides])
    slot = getattr(config.settings.model, group)
    check_slot(build_slot(config, slot, DESIGN_SLOTS[group]))


def check_slot(slot: object) -> None:
    """Check an evolution, scaling, readout or normalization that was built with SIZES."""
    check_traits(slot)
    for mixer in companions(slot):
        check_forms(mixer)
