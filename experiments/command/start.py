"""How an experiment starts from the command line, and how it fails."""

import argparse
import sys
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from experiments.command.options import MINIS, PRESETS, RECIPE, C, Common, Preset, of_preset
from jaxgeom import distributed
from jaxgeom._process import enable_compilation_cache, keep_freed_memory

Options = TypeVar("Options")  # a frozen dataclass; not all commands share the common ones


def main(
    config_type: type[Options],
    run: Callable[[Options], object],
    *,
    name: str,
    args: Sequence[str] | None = None,
) -> int:
    """Run one experiment from the command line.

    `ValueError`, `OSError` and `ImportError` are what the library raises for a user's mistake:
    one line on standard error. Anything else is a defect of ours and keeps its traceback.

    Args:
        config_type: the dataclass of the experiment's options.
        run: the experiment.
        name: of the experiment's module.
        args: the flags; those of the process where None.

    Returns:
        The exit status: 0, 2 after a user's mistake, 130 after Ctrl-C.
    """
    try:
        import tyro  # noqa: PLC0415  # `run` works without it
    except ImportError:
        print("error: the command line needs pip install 'jaxgeom[experiments]'", file=sys.stderr)
        return 2
    prog = f"python -m experiments.{name}"
    config: Any
    if issubclass(config_type, Common):
        config = tyro.cli(config_type, args=args, prog=prog, default=_defaults(config_type, args))
    else:
        config = tyro.cli(config_type, args=args, prog=prog)
    enable_compilation_cache()
    keep_freed_memory()
    try:
        with distributed.session():
            run(config)
    except KeyboardInterrupt:
        print("interrupted; finished files are kept and reused", file=sys.stderr)
        return 130
    except (ValueError, OSError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    if getattr(config, "models", None) == MINIS and distributed.is_writer():
        print(f"\nThe study itself: python -m experiments.{name} --preset paper --output paper")
    return 0


def _defaults(config_type: type[C], args: Sequence[str] | None) -> C:
    """Return the options under the preset that the flags name, by default the mini one.

    Embeddings of one's own take the place of models and data; models of one's own are trained as
    the study trains, unless a preset is asked for.
    """
    flags = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in ("--preset", "--embeddings", "--models"):
        flags.add_argument(name, nargs="?")
    given, _ = flags.parse_known_args(args)
    preset: Preset = next((name for name in PRESETS if name == given.preset), "mini")
    without: tuple[str, ...] = ("models", "data") if given.embeddings else ()
    if given.models and not given.preset:
        without += RECIPE
    return of_preset(config_type, preset, without=without)
