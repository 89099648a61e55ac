"""What the messages of ranks say about others."""

import re

# A rank's name for itself.
SELF = r"rank {rank} of {size}\b"
# Without a majority all are listed, and nobody is blamed.
UNDECIDED = r"the ranks disagree on call number \d+: .*|differ; the first difference: rank \d+ has .*, rank \d+ has .*"


def time_of(what, errors):
    found = re.search(rf"^{what} ([\d.]+)$", errors, re.M)
    return float(found.group(1)) if found else None


def is_undecided(text):
    return re.search(UNDECIDED, text) is not None and ", the others " not in text


def ranks_mentioned(errors, rank, size, is_victim=False):
    """The ranks that a rank's messages mention at all, in whatever way, but for itself as the one that speaks."""
    text = re.sub(SELF.format(rank=rank, size=size), "", errors)
    text = re.sub(rf"^error: rank {rank}: ", "", text, flags=re.M)
    if is_victim:  # the one that differs compares itself
        text = re.sub(r"differs: rank \d+ has .*, this rank ", "", text)
    if is_undecided(text):
        text = re.sub(UNDECIDED, "", text)
    ranks = set()
    for numbers in re.findall(r"\branks? (\d+(?:, \d+)*)", text, re.I):
        ranks.update(int(number) for number in numbers.split(", "))
    return ranks


def without_store_host(errors):
    """Without whose store it was that closed, where the message says as well who never came: the host has given up for that."""
    if "; never arrived: " not in errors:
        return errors
    return re.sub(r"job's store at \S+, which rank \d+ hosts: it has closed the connection", "", errors)


def names_guilty(errors, rank, case):
    if ranks_mentioned(errors, rank, case.size) & case.guilty(rank):
        return True
    if case.size == 2 and is_undecided(errors):
        return True
    return case.fault == "frozen_store" and re.search("which the launcher hosts[,:].* does not answer", errors) is not None
