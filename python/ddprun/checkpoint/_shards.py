"""The files of a sharded checkpoint by their names, and whether they are those that its manifest asks for. Needs no torch."""

import re

BLOCKS = "block-checksums.txt"
MOST_RANKS = 1 << 20  # that a manifest may name, as in C++
_MOST_NAMED = 8
_SHARD = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.safetensors")


def parse(file):
    """The part, the rank and the number of ranks: "model.safetensors", 1 and 4 of "model-00002-of-00004.safetensors". None for other names."""
    match = _SHARD.fullmatch(file)
    if not match or not 1 <= int(match[2]) <= int(match[3]):
        return None
    return f"{match[1]}.safetensors", int(match[2]) - 1, int(match[3])


def part_of(file):
    """The part of a run that a file holds, whole or a rank's share of it: "model.safetensors" for "model-00001-of-00004.safetensors"."""
    shard = parse(file)
    return shard[0] if shard else file


def owner(file):
    """" (rank 1's part)" of the file that one of several ranks has written."""
    shard = parse(file)
    return f" (rank {shard[1]}'s part)" if shard and shard[2] > 1 else ""


def fault(files, world_size):
    """What is wrong with the names of a manifest's files; empty when nothing is."""
    if not 1 <= world_size <= MOST_RANKS:
        return f"its manifest has world_size {world_size}: expected 1 to {MOST_RANKS}"
    missing, first, parts = [], None, {}
    for file in sorted(files):
        shard = parse(file)
        if not shard:
            if _SHARD.fullmatch(file):
                return f"its manifest lists {file}, which is not the file of any rank"
            continue
        part, rank, ranks = shard
        first = first or (file, ranks)
        if ranks != first[1]:
            return f"{file} belongs to a checkpoint of {ranks} ranks, but {first[0]} to one of {first[1]} ranks: they belong to different checkpoints"
        parts.setdefault(part, set()).add(rank)
        if part in files:
            return f"its manifest lists both {part} and {file}"
    if first and first[1] != world_size:
        return f"its manifest has world_size {world_size}, but {first[0]} is of {first[1]} ranks"
    if first and BLOCKS not in files:
        return f"its files hold chunks of tensors, but there is no {BLOCKS}"
    for part, found in sorted(parts.items()):
        stem = part[: -len(".safetensors")]
        absent = (rank for rank in range(first[1]) if rank not in found)
        for _, rank in zip(range(_MOST_NAMED + 1 - len(missing)), absent):
            missing.append(f"{stem}-{rank + 1:05d}-of-{first[1]:05d}.safetensors")
    if not missing:
        return ""
    named = ", ".join(f"{file}{owner(file)}" for file in missing[:_MOST_NAMED])
    return f"files are missing: {named}" + (" and others" if len(missing) > _MOST_NAMED else "")
