#include "comm/backends/shm.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "comm/backends/backend_types.h"
#include "comm/backends/gloo.h"
#include "comm/backends/shm_backend.h"
#include "comm/backends/shm_hosts.h"
#include "comm/backends/shm_rendezvous.h"
#include "comm/core/host_identity.h"

namespace ddp::detail {
namespace {

using Backend = c10::intrusive_ptr<c10d::Backend>;
using Store = c10::intrusive_ptr<c10d::Store>;

// The order of additions in sums of three and more ranks, which decides their bits. It must be equal on all ranks.
shm::Order summation_order(const RankInfo& info) {
  const char* order = std::getenv("DDPRUN_SHM_ORDER");
  const std::string text = order == nullptr ? "" : order;
  if (text.empty() || text == "ring") return shm::Order::kRing;
  if (text == "rank") return shm::Order::kByRank;
  throw std::invalid_argument(who(info) + ": DDPRUN_SHM_ORDER: expected 'ring' or 'rank', got '" + text + "'");
}

std::vector<int> members_of(const std::vector<int>& hosts, int host) {
  std::vector<int> members;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    if (hosts[rank] == host) members.push_back(static_cast<int>(rank));
  }
  return members;
}

// The names that messages use for these ranks of the group.
std::vector<int> names_of(std::vector<int> ranks, const GroupPlan& plan) {
  if (!plan.reports_job_ranks || plan.members.empty()) return ranks;
  for (int& rank : ranks) rank = plan.members.at(static_cast<size_t>(rank));
  return ranks;
}

// The backend between the ranks of this rank's host.
Backend make_intra_host(const GroupPlan& plan, const ShmRendezvous& rendezvous, shm::Order order) {
  if (!rendezvous.segment) return nullptr;
  const int host = rendezvous.hosts[static_cast<size_t>(plan.info.rank)];
  const std::vector<int> members = members_of(rendezvous.hosts, host);
  const auto place = static_cast<int>(std::ranges::find(members, plan.info.rank) - members.begin());
  const auto ranks = static_cast<int>(members.size());
  auto engine =
      shm::Engine::make(*rendezvous.segment, place, shm::must_share_processors(ranks), names_of(members, plan));
  return c10::make_intrusive<ShmBackend>(place, ranks, std::move(engine), plan.timeout, order);
}

// The backend between the first rank of each host; null on all other ranks.
Backend make_inter_host(const GroupPlan& plan, const ShmRendezvous& rendezvous, const Store& store) {
  const int hosts = 1 + *std::ranges::max_element(rendezvous.hosts);
  const int host = rendezvous.hosts[static_cast<size_t>(plan.info.rank)];
  if (members_of(rendezvous.hosts, host).front() != plan.info.rank) return nullptr;
  GroupPlan inter_host = plan;
  inter_host.info.rank = host;
  inter_host.info.world_size = hosts;
  inter_host.name += "/hosts";
  inter_host.members.clear();
  return make_gloo(inter_host, c10::make_intrusive<c10d::PrefixStore>("hosts", store));
}

std::string why_gloo(const ShmRendezvous& rendezvous) {
  if (!rendezvous.why_not.empty()) return rendezvous.why_not;
  if (rendezvous.python)
    return "rank " + std::to_string(*rendezvous.python) + " uses the backend gloo of torch.distributed";
  return "each rank is on a different host";
}

}  // namespace

ShmConnection connect_shm(const GroupPlan& plan, const Store& store, const std::string& host) {
  const shm::Order order = summation_order(plan.info);
  const ShmRendezvous rendezvous = shm_rendezvous(plan.info, host, *store, plan.timeout);
  const bool is_one_host = rendezvous.segment && rendezvous.segment->ranks() == plan.info.world_size;
  if (is_one_host) return {.backend = make_intra_host(plan, rendezvous, order)};
  const Backend all = make_gloo(plan, store);
  if (!rendezvous.any_host_shares) {
    return {.backend = all, .why_gloo = why_gloo(rendezvous), .was_expected = rendezvous.why_not.empty()};
  }
  ShmHostsBackend::Parts parts{.intra_host = make_intra_host(plan, rendezvous, order),
                               .inter_host = make_inter_host(plan, rendezvous, store),
                               .hosts = rendezvous.hosts,
                               .timeout = plan.timeout};
  return {.backend = c10::make_intrusive<ShmHostsBackend>(all, std::move(parts))};
}

void report_gloo(const std::string& why) {
  std::fprintf(stderr, "ddprun: the ranks share no memory and use gloo: %s\n", why.c_str());
}

Backend make_shm(const GroupPlan& plan, const Store& store, const std::string& host) {
  const ShmConnection made = connect_shm(plan, store, host);
  if (plan.info.rank == 0 && !made.why_gloo.empty() && !made.was_expected) report_gloo(made.why_gloo);
  return with_checks(made.backend, plan, store);
}

BackendType shm_backend() {
  return {.traits = {.name = "shm",
                     .title = "shared memory",
                     .serves_cpu = true,
                     .receives_from_any = true,
                     .dtypes = gloo_dtypes()},
          .make = [](const GroupPlan& plan, const auto& store) { return make_shm(plan, store, host_identity()); },
          .may_choose_another = true,
          .check = [](const RankInfo& info) { static_cast<void>(summation_order(info)); }};
}

}  // namespace ddp::detail
