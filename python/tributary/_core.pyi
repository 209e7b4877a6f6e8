from typing import Any, final

import numpy.typing as npt

__version__: str

def main(argv: list[str], launcher: list[str]) -> int: ...

@final
class Group:
    @staticmethod
    def connect(
        switch: str,
        job: str,
        rank: int,
        world_size: int,
        timeout: float,
        protocol: str,
        elements_per_packet: int | None = None,
        slots: int | None = None,
    ) -> Group: ...
    def submit(
        self, input: npt.NDArray[Any], output: npt.NDArray[Any], dtype: str, op: str, timeout: float
    ) -> Pending: ...
    def submit_raw(
        self,
        input: int,
        output: int,
        elements: int,
        dtype: str,
        op: str,
        timeout: float,
        owners: tuple[object, object],
        kept: tuple[int, int],
    ) -> Pending: ...
    def keeps_parts(self) -> bool: ...
    def info(self) -> dict[str, Any]: ...
    def stats(self) -> dict[str, Any]: ...
    def close(self) -> None: ...

@final
class Pending:
    def wait(self, timeout: float | None) -> bool: ...
    def is_done(self) -> bool: ...

@final
class Switch:
    def __new__(cls, listen: str, cores: int, memory_mib: int, http: str | None) -> Switch: ...
    def address(self) -> str: ...
    def http_address(self) -> str | None: ...
    def stop(self) -> None: ...
