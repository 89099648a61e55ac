#include "ranks/rank_option.h"

#include <stdexcept>

#include "ranks/job.h"

namespace ddp {

int require_rank(const std::string& what, std::optional<int> rank, const std::string& consequence,
                 const std::string& spelling) {
  if (rank) return *rank;
  const JobPlace job = job_of_this_thread();
  if (job.size == 1) return 0;
  throw std::invalid_argument(job_prefix(job) + what + ": it was not told which rank this is, so all " +
                              std::to_string(job.size) + " ranks would " + consequence + ". Give it the group, " +
                              spelling + ", or `.rank`.");
}

namespace detail {

void refuse_second(const std::string& what, const char* option, int given, int of_group) {
  throw std::invalid_argument(job_prefix(job_of_this_thread()) + what + ": `" + option + " = " + std::to_string(given) +
                              "` contradicts the group, which says " + std::to_string(of_group) + "; leave it out");
}

}  // namespace detail
}  // namespace ddp
