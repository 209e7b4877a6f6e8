"""Check that all ranks bring the same operation to the host path, by a small sum through the network beside it.

If one rank's operation takes the host path and another's the network, Gloo waits for its whole timeout and does not say
for which rank. If sizes differ, it tells one rank and lets the others wait. The sum names at once the ranks that bring
something else, and at a timeout those that did not come.
"""

from __future__ import annotations

import contextlib
import time
import zlib
from collections.abc import Sequence
from datetime import timedelta

import torch

from tributary.errors import CollectiveError, MismatchError, TributaryError
from tributary.torch.claims import Claim
from tributary.torch.network import Network
from tributary.torch.transit import Everyones, Hint, Hints, StillRunningError, Transit

#: The word of a rank that has refused its own operation. Checksums are not negative.
REFUSED = -1
#: The type of a word, and what a barrier is in the network: elements and type.
_WORD = "i32"
_BARRIER = (0, _WORD)
#: How often to look at the other sum while one waits for the first.
_GLANCE = timedelta(milliseconds=50)
#: How long to wait for the other sum after the first has failed.
_LAST_WORDS = timedelta(seconds=2)


class Agreement:
    """The sums that go beside an operation of the host path: of the ranks' descriptions, and of the bytes they send."""

    def __init__(self, claim: Claim | None, rank: int, size: int) -> None:
        """Make this rank's contributions; without a claim the rank has refused its operation."""
        self._claim, self._rank = claim, rank
        #: A checksum of each rank's description, at the rank's index.
        self._words = torch.zeros(size, dtype=torch.int32)
        self._words[rank] = REFUSED if claim is None else zlib.crc32(claim.what.encode()) & 0x7FFF_FFFF
        #: What all ranks send to a rank less what it expects, at the rank's index: zeros, if they agree.
        self._balance = None if claim is None or not claim.sent else _balance(claim, rank, size)
        self._transits: list[Transit] = []
        self._beside: Transit | None = None

    def start(
        self,
        network: Network,
        beside: Network | None,
        title: str,
        timeout: float,
        hints: Hints,
        everyones: Everyones,
    ) -> None:
        """Start the sums: in the network of the sums, and `beside` it if the others may bring the operation there."""

        def submit(way: Network, sums: torch.Tensor) -> Transit:
            pending = way.all_reduce(sums, sums, "sum", timeout)
            way.go_on()
            return Transit(title, pending, timeout, {**hints, CollectiveError: self._without_sum}, everyones)

        self._transits = [submit(network, sums) for sums in (self._words, self._balance) if sums is not None]
        self._beside = None if beside is None else submit(beside, self._words.clone())

    def _without_sum(self, error: Exception, sentence: str) -> str:
        """The sentence of a sum that has failed, for people who know the operation and not the sum."""
        return sentence.replace(f"sum of {len(self._words)} {_WORD} elements: ", "", 1)

    def is_done(self) -> bool:
        """Whether it has ended, successfully or not."""
        first, *rest = self._transits
        return first.is_done() and (bool(self._others()) or all(transit.is_done() for transit in rest))

    def wait(self, patience: timedelta) -> None:
        """Wait for all ranks' descriptions; raise an error that names ranks that did not come or disagree."""
        deadline = time.monotonic() + patience.total_seconds() if patience else None

        def left() -> timedelta:
            if deadline is None:
                return patience
            return max(timedelta(seconds=deadline - time.monotonic()), timedelta(milliseconds=1))

        first, *rest = self._transits
        try:
            self._watch_beside(deadline)
            first.wait(left())
        except StillRunningError:
            raise
        except TributaryError:
            # Ranks that bring the operation elsewhere leave when they find out: that they do says more.
            if self._beside is not None:
                with contextlib.suppress(StillRunningError):
                    self._beside.wait(_LAST_WORDS)
            raise
        self._check_words()
        for transit in rest:
            transit.wait(left())
        self._check_balance()

    def _watch_beside(self, deadline: float | None) -> None:
        """Wait until either sum of the words has ended; raise an error of the one beside."""
        first, beside = self._transits[0], self._beside
        while beside is not None and not first.is_done() and (deadline is None or time.monotonic() < deadline):
            with contextlib.suppress(StillRunningError):
                first.wait(_GLANCE)
            if beside.is_done():
                beside.wait(_GLANCE)
                return

    def _others(self) -> list[int]:
        differ: list[int] = (self._words != self._words[self._rank]).nonzero().flatten().tolist()
        return differ

    def _check_words(self) -> None:
        others = self._others()
        refused = [rank for rank in others if self._words[rank] == REFUSED]
        if refused:
            raise MismatchError(
                f"{_ranks(refused)} refused the operation, since the tensors there do not fit together; the error on "
                f"{'that rank' if len(refused) == 1 else 'those ranks'} says how"
            )
        if others:
            assert self._claim is not None, "a rank that has refused its operation does not wait for the others"
            raise MismatchError(
                f"ranks disagree: rank {self._rank} brings {self._claim.what} to the host path, {_ranks(others)} "
                f"bring{'s' * (len(others) == 1)} another operation, type or size"
            )

    def _check_balance(self) -> None:
        wrong = [] if self._balance is None else self._balance.nonzero().flatten().tolist()
        if wrong:
            expect = "expects other sizes" if len(wrong) == 1 else "expect other sizes"
            raise MismatchError(f"ranks disagree on sizes: {_ranks(wrong)} {expect} than the other ranks send")


def _balance(claim: Claim, rank: int, size: int) -> torch.Tensor:
    """A checksum of what this rank sends to each other one, and at its own index less those of what it expects.

    Checksums are so small that no order of summation overflows.
    """
    largest = (1 << 30) // size
    contribution = [zlib.crc32(f"{rank}: {count}".encode()) % largest for count in claim.sent]
    contribution[rank] -= sum(zlib.crc32(f"{i}: {count}".encode()) % largest for i, count in enumerate(claim.received))
    return torch.tensor(contribution, dtype=torch.int32)


def hint(size: int, *, is_spread: bool = False) -> Hint:
    """What an error of a sum in the network adds where another rank's sum may stand for another operation."""

    def hinted(error: MismatchError, sentence: str) -> str:
        brought = {(elements, dtype) for _, elements, dtype in error.brought}
        if is_spread and _BARRIER in brought:
            return f"{sentence} (a barrier may stand for an operation of at least 1 MiB)"
        if (size, _WORD) in brought:
            return f"{sentence} (a sum of {size} i32 elements may stand for an operation that takes the host path)"
        return sentence

    return hinted


def disagreement(brought: Sequence[str]) -> str | None:
    """The sentence of ranks that have brought these; None if their descriptions are alike."""
    camps: dict[str, list[int]] = {}
    for rank, what in enumerate(brought):
        camps.setdefault(what, []).append(rank)
    sides = [f"{_ranks(ranks)} bring{'s' * (len(ranks) == 1)} {what}" for what, ranks in camps.items()]
    return f"ranks disagree: {'; '.join(sides)}" if len(sides) > 1 else None


def _ranks(ranks: list[int]) -> str:
    return f"rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))}"
