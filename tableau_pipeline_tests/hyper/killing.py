import os
import signal
import time

from tableauhyperapi import Connection, HyperException, HyperProcess


def process_id(hyper: HyperProcess) -> int:
    """The process id of a hyperd."""
    return int(hyper.endpoint.connection_descriptor.rpartition(".")[2])


def kill(hyper: HyperProcess) -> int:
    """The end of a hyperd, as a damaged file brings it about; its process id."""
    process = process_id(hyper)
    os.kill(process, signal.SIGKILL)
    while _answers(hyper):
        time.sleep(0.001)
    return process


def _answers(hyper: HyperProcess) -> bool:
    try:
        Connection(hyper.endpoint).close()
    except HyperException:
        return False
    return True
