#include "ddprun/detail/base/rank_option.h"

#include <stdexcept>

#include "base/job.h"

namespace ddp {

int require_rank(const std::string& what, std::optional<int> rank, const std::string& consequence,
                 const std::string& spelling) {
  if (rank) return *rank;
  const JobPlace job = job_of_this_thread();
  if (job.size == 1) return 0;
  throw std::invalid_argument(job_prefix(job) + what + ": no group and no rank were given, so all " +
                              std::to_string(job.size) + " ranks would " + consequence + ". Give it the group, " +
                              spelling + ", or `.rank`.");
}

namespace detail {

void refuse_second_rank(const std::string& what, int given) {
  throw std::invalid_argument(job_prefix(job_of_this_thread()) + what + ": `.rank = " + std::to_string(given) +
                              "` and a group were given, and the group already has the rank; leave one of them out");
}

}  // namespace detail
}  // namespace ddp
