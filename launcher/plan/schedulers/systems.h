// The systems that ddprun knows by their variables. Each function is pure; it gives nothing where its variables are not
// there, and throws std::invalid_argument, naming the variable, where they cannot be right.
#pragma once

#include <optional>

#include "launcher/plan/schedulers/scheduled_place.h"
#include "launcher/plan/schedulers/surroundings.h"

namespace launcher {

using ReadSystem = std::optional<ScheduledPlace> (*)(const Surroundings&);

// What starts processes: each tells its own process's number. ddprun is to be one for a node.
std::optional<ScheduledPlace> read_open_mpi(const Surroundings& surroundings);
std::optional<ScheduledPlace> read_mpich(const Surroundings& surroundings);
std::optional<ScheduledPlace> read_jsrun(const Surroundings& surroundings);
std::optional<ScheduledPlace> read_slurm(const Surroundings& surroundings);

// What starts containers or machines, and tells each its number.
std::optional<ScheduledPlace> read_pods(
    const Surroundings& surroundings);  // RANK of Kubeflow's PyTorchJob v1, of PAI's DLC
std::optional<ScheduledPlace> read_leader_worker_set(const Surroundings& surroundings);
std::optional<ScheduledPlace> read_sagemaker(const Surroundings& surroundings);
std::optional<ScheduledPlace> read_aws_batch(const Surroundings& surroundings);
std::optional<ScheduledPlace> read_vertex(const Surroundings& surroundings);
std::optional<ScheduledPlace> read_lsf(const Surroundings& surroundings);
std::optional<ScheduledPlace> read_indexed_job(const Surroundings& surroundings);

}  // namespace launcher
