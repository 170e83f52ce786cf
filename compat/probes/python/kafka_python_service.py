"""Stands for test/service.py, which kafka-python's package leaves out: a broker that somebody else has started."""


class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def dump_logs(self):
        """The runner keeps the broker's log."""

    def stop(self):
        """The runner stops the broker."""


class SpawnedService:
    def __init__(self, *_args, **_kwargs):
        raise RuntimeError("these tests run on a broker that is there already")
