"""How the tests of faults start a rank of fault_program."""

import os

TIMEOUT_S = 4.0  # the group's
VARIABLES = ("RANK", "WORLD_SIZE", "LOCAL_", "GROUP_", "ROLE_", "MASTER_", "TORCHELASTIC_", "OMPI_", "PMI_", "SLURM_")


def environment(case, rank, address, port, nodes):
    clean = {name: value for name, value in os.environ.items() if not name.startswith(VARIABLES)}
    clean.update(RANK=str(rank), WORLD_SIZE=str(case.size), LOCAL_RANK=str(rank), LOCAL_WORLD_SIZE=str(case.size),
                 MASTER_ADDR=address, MASTER_PORT=str(port), OMP_NUM_THREADS="1",
                 TORCHELASTIC_USE_AGENT_STORE=str(not case.own_store))
    if nodes:
        clean["GLOO_SOCKET_IFNAME"] = nodes.links[case.node(rank)]
    return clean
