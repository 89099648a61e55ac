#include "ddprun/detail/samplers/replica_option.h"

#include <stdexcept>

#include "base/job.h"

namespace ddp {
namespace {

[[noreturn]] void refuse(const JobPlace& job, const std::string& sampler, const std::string& why) {
  throw std::invalid_argument(
      job_prefix(job) + sampler + ": " + why + ". Give it the group, " + sampler +
      "(…, group), or `.num_replicas` and `.rank`; `.num_replicas = 1` to give all samples to every rank.");
}

}  // namespace

Replica require_replica(const std::string& sampler, std::optional<int> num_replicas, std::optional<int> rank) {
  const JobPlace job = job_of_this_thread();
  if (num_replicas && !rank && *num_replicas > 1) {
    refuse(
        job, sampler,
        "`.num_replicas = " + std::to_string(*num_replicas) + "` without `.rank`: every rank would get rank 0's share");
  }
  if (!num_replicas && job.size > 1) {
    const std::string share =
        rank ? "`.rank = " + std::to_string(*rank) + "` without `.num_replicas`" : "no group and no rank were given";
    refuse(job, sampler, share + ", so all " + std::to_string(job.size) + " ranks would get every sample");
  }
  return {.num_replicas = num_replicas.value_or(1), .rank = rank.value_or(0)};
}

void detail::refuse_second_size(const std::string& sampler, int given, int of_group) {
  throw std::invalid_argument(job_prefix(job_of_this_thread()) + sampler +
                              ": `.num_replicas = " + std::to_string(given) + "` contradicts the group, which says " +
                              std::to_string(of_group) + "; leave it out");
}

}  // namespace ddp
