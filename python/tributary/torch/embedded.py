"""The switches in this process: one for each address, whichever of its groups need it."""

from __future__ import annotations

import threading
from typing import ClassVar

import tributary


class EmbeddedSwitch:
    """A switch that the groups of this process share; it stops once the last has released it."""

    _lock = threading.Lock()
    _running: ClassVar[dict[str, EmbeddedSwitch]] = {}

    def __init__(self, listen: str) -> None:
        self._listen, self._users = listen, 0
        self._switch = tributary.Switch(listen)
        #: The address to which workers connect.
        self.address = self._switch.address

    @classmethod
    def acquire(cls, listen: str) -> EmbeddedSwitch:
        """The switch that listens at "ADDR:PORT", which is started if there is none."""
        with cls._lock:
            switch = cls._running.get(listen) or EmbeddedSwitch(listen)
            cls._running[listen] = switch
            switch._users += 1
            return switch

    def release(self) -> None:
        """Say that a group needs it no longer."""
        with self._lock:
            self._users -= 1
            if self._users > 0:
                return
            del self._running[self._listen]
        self._switch.close()
