"""The command line: `coefdyn <command> key=value ...`; scripts/*.py are the same commands."""

import importlib
import importlib.metadata
import signal
import sys
from collections.abc import Sequence
from typing import NamedTuple

from coefdyn.errors import ConfigError


class Command(NamedTuple):
    """`module` of this package has `run(arguments) -> exit code`; conf/<keys>.yaml has its keys."""

    module: str
    keys: str
    summary: str


COMMANDS = {
    "train": Command("train", "train", "train one design on one task; -m: every combination"),
    "sweep": Command("sweep", "sweep", "plan, run, submit and look after the runs of a grid"),
    "figure": Command("figure", "figure", "tables and figures from records"),
    "report": Command("report", "report", "verdicts on the paper's claims, on one page"),
    "check": Command("check", "check", "a design against the six principles"),
    "show": Command("show", "show", "the record of a run; of two runs, what differs"),
    "prepare": Command("prepare", "prepare_wikitext", "WikiText to tokens"),
    "bench": Command("bench", "benchmark", "speed and memory against their bars"),
    "doctor": Command("doctor", "doctor", "what this machine can use, and why not the rest"),
    "demo": Command("demo", "train", "a small real ablation, its figure and its page"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit code: the command's own, or 1 after an error, which is one sentence on stderr."""
    name, *rest = (sys.argv[1:] if arguments is None else list(arguments)) or ["--help"]
    if name in ("-h", "--help"):
        print(_overview())
        return 0
    if name == "--version":
        print(f"coefdyn {importlib.metadata.version('coefdyn')}")
        return 0
    try:
        if name not in COMMANDS:
            raise ConfigError(f"{name} is no command; choose from {', '.join(COMMANDS)}")
        if "-h" in rest or "--help" in rest:
            print(_help(name))
            return 0
        module = importlib.import_module(f"coefdyn.cli.{COMMANDS[name].module}")
        code: int = module.run(rest)
        return code
    except ConfigError as error:
        print(f"error: {_with_own_keys(error, name)}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("interrupted: what was saved is kept; the same command goes on", file=sys.stderr)
        return 128 + signal.SIGINT


def _with_own_keys(error: ConfigError, name: str) -> ConfigError:
    """The error; for an unknown key, suggestions include the command's own keys."""
    from coefdyn.config.compose import raw  # takes half a second
    from coefdyn.config.suggest import UnknownKeyError, keys_of

    if not isinstance(error, UnknownKeyError) or COMMANDS[name].keys == "train":
        return error
    return error.also_known(keys_of(raw([], COMMANDS[name].keys)))


def _overview() -> str:
    lines = [f"  {name:<9}{command.summary}" for name, command in COMMANDS.items()]
    return "\n".join(
        ["usage: coefdyn <command> [key=value ...]", "", *lines, "",
         "coefdyn <command> --help lists its keys; coefdyn --version prints the version."]
    )  # fmt: skip


def _help(name: str) -> str:
    from coefdyn.cli.usage import usage  # takes half a second

    command = COMMANDS[name]
    if name == "demo":
        return (
            f"coefdyn demo [key=value ...]: {command.summary}\n\n"
            "Leaves results/demo/index.html. Keys are those of coefdyn train, such as scale=smoke."
        )
    return usage(name, command.keys, command.summary)
