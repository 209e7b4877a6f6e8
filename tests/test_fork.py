"""A process that forks: its groups and its switch stay the parent's, and the child is told so."""

from __future__ import annotations

import subprocess
import sys

import pytest

#: Two ranks in one process and a switch, all of which a child inherits while rank 0 waits for rank 1.
SCRIPT = """
import os, sys, threading
import numpy as np, tributary

def refused(call):
    try:
        call()
    except tributary.TributaryError as error:
        assert "made before a fork" in str(error), error
    else:
        raise AssertionError("it went through")

def join(rank):
    groups[rank] = tributary.connect(switch.address, job="a", rank=rank, world_size=2, timeout=20.0)

groups, x = {{}}, np.ones(100_000, np.float32)
with tributary.Switch() as switch:
    threads = [threading.Thread(target=join, args=(rank,)) for rank in range(2)]
    for thread in threads: thread.start()
    for thread in threads: thread.join()
    handle = groups[0].all_reduce_async(x)
    child = os.fork()
    if child == 0:
{child}
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert groups[1].all_reduce(x)[0] == 2.0
    assert handle.result()[0] == 2.0
    for group in groups.values(): group.close()
print("the parent is well")
"""

CHILDREN = {
    "ends": "sys.exit(7)",
    "submits": "refused(lambda: groups[0].all_reduce(x)); refused(groups[0].barrier); sys.exit(7)",
    "moves": "refused(lambda: groups[0].broadcast(x, 0)); refused(lambda: groups[0].reduce(x, 0)); sys.exit(7)",
    "waits": "refused(handle.result); refused(lambda: handle.result(0.1)); sys.exit(7)",
    "asks": "refused(groups[0].stats); assert groups[0].info.world_size == 2; sys.exit(7)",
    "closes": "groups[0].close(); groups[1].close(); switch.close(); sys.exit(7)",
    "forgets": "handle = None; groups.clear(); switch = None; os._exit(7)",
}


#: Two ranks of a group in memory, which no child has.
IN_MEMORY = """
import os, sys, threading
import numpy as np, tributary
from tributary._core import LocalGroup

def join(rank):
    groups[rank] = LocalGroup.meet(f"tributary/fork/{os.getpid()}", rank, 2, 20.0)

def start(rank):
    memory = (x.ctypes.data + 400 * rank, 400, x)
    return groups[rank].all_reduce(memory, memory, "f32", "sum", 20.0)

groups, x = {}, np.ones(200, np.float32)
threads = [threading.Thread(target=join, args=(rank,)) for rank in range(2)]
for thread in threads: thread.start()
for thread in threads: thread.join()
handle = start(0)
child = os.fork()
if child == 0:
    try:
        handle.wait(None)
    except tributary.TributaryError as error:
        assert "made before a fork" in str(error), error
        assert handle.is_done()
        groups[0].finish()
        os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
others = start(1)
groups[1].go_on()
assert handle.wait(20.0) and others.wait(20.0)
assert x.tolist() == [2.0] * 200
print("the parent is well")
"""


def test_a_forked_child_waits_for_nothing_of_its_parents_memory() -> None:
    ran = subprocess.run([sys.executable, "-c", IN_MEMORY], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "the parent is well\n"


@pytest.mark.parametrize("child", CHILDREN.values(), ids=CHILDREN.keys())
def test_a_forked_child_does_its_parents_job_no_harm(child: str) -> None:
    script = SCRIPT.format(child=f"        {child}")
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == "the parent is well\n"
    assert ran.stderr == ""
