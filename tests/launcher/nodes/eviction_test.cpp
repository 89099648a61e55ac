#include <vector>

#include "launcher/nodes/store/store_server.h"
#include "tests/support/catch.h"

namespace launcher::store {
namespace {

using namespace std::chrono_literals;

const std::chrono::steady_clock::time_point kNow{100s};

EvictionCandidate candidate(ConnectionId id, std::optional<pid_t> owner, bool is_known = true) {
  return {.id = id, .owner = owner, .is_known = is_known, .uses_store = is_known, .accepted = kNow - 2s};
}

TEST_CASE("Eviction: who has not been looked for stays") {
  CHECK_FALSE(find_foreign_connection({candidate(1, std::nullopt, false)}, true, kNow));
}

TEST_CASE("Eviction: the oldest silent outsider goes first") {
  const std::vector candidates = {candidate(1, 0), candidate(5, 0, false), candidate(3, 0, false), candidate(2, 77)};
  CHECK(find_foreign_connection(candidates, true, kNow)->id == 3U);
  CHECK(find_foreign_connection({candidate(4, 0), candidate(1, 0), candidate(0, 77)}, true, kNow)->id == 1U);
}

TEST_CASE("Eviction: on several nodes who uses the store or is new may be a rank elsewhere") {
  EvictionCandidate fresh = candidate(1, 0, false);
  fresh.accepted = kNow - 500ms;
  CHECK_FALSE(find_foreign_connection({candidate(0, 0), fresh}, false, kNow));
  CHECK(find_foreign_connection({candidate(0, 0), fresh, candidate(2, 0, false)}, false, kNow)->id == 2U);
}

TEST_CASE("Eviction: a process may have its fair share") {
  std::vector<EvictionCandidate> candidates;
  for (ConnectionId id = 0; id < 16; ++id) candidates.push_back(candidate(id + 10, 7));
  candidates.push_back(candidate(1, 8));
  CHECK_FALSE(find_busiest_process(candidates));
  candidates.push_back(candidate(5, 7));
  CHECK(find_busiest_process(candidates)->id == 5U);
}

}  // namespace
}  // namespace launcher::store
