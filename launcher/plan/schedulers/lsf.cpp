#include <algorithm>
#include <stdexcept>
#include <vector>

#include "base/schedulers/lsf_hosts.h"
#include "base/schedulers/slurm_step.h"
#include "launcher/plan/schedulers/systems.h"
#include "launcher/plan/schedulers/variables.h"

namespace launcher {
namespace {

std::string short_name(const std::string& host) {
  return host.substr(0, host.find('.'));
}

}  // namespace

// blaunch starts ddprun on each host of the job.
std::optional<ScheduledPlace> read_lsf(const ProcessContext& context) {
  const auto job = text_of(context, "LSB_JOBID");
  const auto list = text_of(context, "LSB_MCPU_HOSTS");
  if (!job || !list) return std::nullopt;
  const std::vector<std::string> hosts = ddp::detail::lsf_hosts(*list);
  const std::string why = shown("LSB_MCPU_HOSTS", *list);
  ScheduledPlace place{.system = "LSF", .nnodes = {{static_cast<int>(hosts.size()), why}}};
  if (hosts.size() == 1) return place;
  const auto here = std::find_if(hosts.begin(), hosts.end(), [&](const std::string& host) {
    return short_name(host) == short_name(context.host_name);
  });
  if (here == hosts.end()) {
    throw std::invalid_argument("this host, " + context.host_name + ", is not in " + why);
  }
  place.node_rank = {{static_cast<int>(here - hosts.begin()), "where this host is in " + why}};
  place.master_addr = {{hosts.front(), "the first host of " + why}};
  place.master_port = {{ddp::detail::port_of_job(*job), "derived from " + shown("LSB_JOBID", *job)}};
  place.job_id = sourced_text("LSB_JOBID", *job);
  return place;
}

}  // namespace launcher
