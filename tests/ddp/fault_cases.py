"""The cases of the soak of faults: which rank goes wrong, how, where."""

import dataclasses

MODELS = ("ddp", "buffers", "syncbn", "horovod", "plain", "shards")
STEP_PLACES = ("start", "forward", "backward", "after")
ANYWHERE = ("connect", "wrap", "wrapped", *STEP_PLACES, "close", "moment")
# Where each fault can be.
PLACES = {
    "kill": ANYWHERE,
    "stop": ANYWHERE,
    "throw": ("connect", "wrap", "wrapped", *STEP_PLACES, "close"),
    "other": ("wrap", "wrapped", "start", "forward", "after"),
    "skip": ("start",),
    "shorter": ("start",),  # ends its loop before the others
    "unsynced": ("start",),  # no_sync on one rank
    "branch": ("start",),  # leaves out a layer
    "model": ("construction",),  # wraps another model
    "frozen_store": ANYWHERE,
    "frozen_host": ANYWHERE,
    "killed_host": ANYWHERE,
    "link_down": ("connect", "wrap", "wrapped", *STEP_PLACES, "moment"),
}
MODELS_OF = {"unsynced": ("ddp", "buffers", "syncbn"), "branch": ("ddp", "buffers", "syncbn", "shards")}
IN_PROGRAM = {"frozen_host": "stop", "killed_host": "kill", "frozen_store": "stop", "link_down": "none"}
LONGEST_DELAY_US = 300_000


@dataclasses.dataclass(frozen=True)
class Case:
    model: str
    fault: str
    place: str
    size: int
    victim: int
    step: int
    own_store: bool  # rank 0 hosts the store
    nodes: bool  # two of them, with a wire between
    delay_us: int

    def __str__(self):
        where = "2 nodes, " if self.nodes else ""
        host = "rank 0" if self.own_store else "launcher"
        step = f" of step {self.step}" if self.place in STEP_PLACES else f" {self.delay_us} us" if self.place == "moment" else ""
        return f"{self.fault} of rank {self.victim}/{self.size} at {self.place}{step}, {self.model}, {where}{host} hosts"

    def node(self, rank):
        return rank * 2 // self.size

    def in_program(self):
        return IN_PROGRAM.get(self.fault, self.fault)

    def is_from_outside(self):
        return self.fault in ("link_down", "frozen_store")

    def victim_stays(self):
        """The victim does not end by itself, or is not asked to end in time."""
        return self.in_program() == "stop"

    def may_end_well(self):
        """The others may have been through, or have seen nothing that they could notice."""
        # A rank that goes on with the others' next calls is one collective behind at the end.
        return self.fault in ("skip", "shorter", "unsynced") or self.place == "close"

    def guilty(self, rank):
        """The ranks that may be named by this one."""
        if self.fault == "link_down":
            return {other for other in range(self.size) if self.node(other) != self.node(rank)}
        return {self.victim}


def random_case(rng, only, can_make_nodes):
    faults = [f for f in PLACES if f in only] or PLACES
    fault = rng.choice([f for f in faults if f != "link_down" or can_make_nodes])
    place = rng.choice(PLACES[fault])
    size = rng.choice((2, 3, 4))
    nodes = fault == "link_down" or (can_make_nodes and fault != "frozen_store" and rng.random() < 1 / 3)
    own_store = fault != "frozen_store" and (nodes or fault in ("frozen_host", "killed_host") or rng.random() < 0.4)
    victim = 0 if fault in ("frozen_host", "killed_host") else size - 1 if fault == "link_down" else rng.randrange(size)
    possible = MODELS_OF.get(fault, MODELS)
    model = rng.choice([m for m in possible if m in only] or possible)
    return Case(model, fault, place, size, victim, rng.randrange(1, 9), own_store, nodes, rng.randrange(LONGEST_DELAY_US))
