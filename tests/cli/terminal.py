"""A command in a pseudo-terminal: what the screen shows at the end, and at any time before."""

import fcntl
import os
import pty
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from pathlib import Path

import pyte

LINES, COLUMNS = 40, 120


class Terminal:
    """Feeds what a command writes to a screen."""

    def __init__(self, command: Sequence[str], cwd: Path) -> None:
        ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self.screen = pyte.Screen(COLUMNS, LINES)
        self.stream = pyte.ByteStream(self.screen)
        environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "coefdyn", *command], cwd=cwd, env=environment,
            stdin=theirs, stdout=theirs, stderr=theirs, start_new_session=True,
        )  # fmt: skip
        os.close(theirs)
        self.ours, self.shown = ours, [""]

    def text(self) -> str:
        return "\n".join(line.rstrip() for line in self.screen.display).rstrip()

    def read(self, seconds: float = 120.0) -> int:
        """Until the command has ended; keeps every state of the screen."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if select.select([self.ours], [], [], 0.2)[0]:
                try:
                    data = os.read(self.ours, 65536)
                except OSError:  # the other end is closed
                    data = b""
                if not data:
                    break
                self.stream.feed(data)
                if self.text() != self.shown[-1]:
                    self.shown.append(self.text())
            elif self.process.poll() is not None:
                break
        return self.process.wait(10)
