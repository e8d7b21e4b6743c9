"""Plants by name: the package's own, and yours, `my_module:MyPlant`, from a module beside the scenario."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.machinery import PathFinder
from pathlib import Path
from types import ModuleType
from typing import Any

from ..errors import InputError
from ..models import PLANTS
from ..models.plant import Plant
from ..parallel import share_search_path
from ..restart import own_code

_NEEDED = ("state_names", "state_units", "input_names", "input_units", "sampling_time")


def plant_named(name: str, folder: Path) -> Plant:
    """The plant named by a scenario in this folder.

    Its module is looked for in the folder, then in the working directory, then among installed packages.
    """
    if name in PLANTS:
        return PLANTS[name]()
    module_name, _, attribute = name.partition(":")
    module = _module(module_name, [str(folder.resolve()), str(Path.cwd())])
    found = getattr(module, attribute, None)
    if found is None:
        near = difflib.get_close_matches(attribute, [each for each in vars(module) if not each.startswith("_")], n=1)
        meant = f" (did you mean {near[0]!r}?)" if near else ""
        raise InputError(f"plant.name: module {module_name!r} has no {attribute!r}{meant}")
    return _checked(_built(found, name), name)


def _built(found: Any, name: str) -> Any:
    if not isinstance(found, type) or not issubclass(found, Plant):
        return found
    try:
        return found()
    except TypeError as error:
        raise InputError(f"plant.name: {name} cannot be built without arguments ({error})") from None


def _checked(plant: Any, name: str) -> Plant:
    if not isinstance(plant, Plant):
        kind = f"class {plant.__name__}" if isinstance(plant, type) else type(plant).__name__
        raise InputError(f"plant.name: {name} is not a rkhs_control.models.plant.Plant but a {kind}")
    for needed in _NEEDED:
        if not hasattr(plant, needed):
            raise InputError(f"plant.name: {name} has no {needed}, which every plant needs")
    return plant


def _module(name: str, folders: list[str]) -> ModuleType:
    with _first_on_path(folders):
        _require_same(name.partition(".")[0], folders)
        try:
            module = import_module(name)
        except (Exception, SystemExit) as error:  # whatever a foreign module raises when it is imported
            reason = f"{type(error).__name__}: {' '.join(str(error).split())}"
            raise InputError(f"plant.name: module {name!r} cannot be imported ({reason})") from None
    own_code()  # of what was imported, before anybody edits it
    return module


@contextmanager
def _first_on_path(folders: list[str]) -> Iterator[None]:
    """Put these folders first on the module search path; afterwards last, as other processes will have them."""
    before = list(sys.path)
    sys.path[:0] = folders
    try:
        yield
    finally:
        added = [folder for folder in folders if folder not in before]
        sys.path[:] = [*before, *added]
        share_search_path(folders, are_new=bool(added))


def _require_same(name: str, folders: list[str]) -> None:
    """Refuse a module name that another file was imported under: Python would use that file instead."""
    spec, loaded = PathFinder.find_spec(name, folders), sys.modules.get(name)
    origin = getattr(getattr(loaded, "__spec__", None), "origin", None)
    if spec is not None and loaded is not None and spec.origin != origin:
        raise InputError(
            f"plant.name: another module {name!r} is in use ({origin or 'built in'}): rename {spec.origin}"
        )
