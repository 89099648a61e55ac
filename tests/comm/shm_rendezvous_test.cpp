// Which ranks share memory, found out over a store; ranks are threads that say of which host they are.
#include "comm/backends/shm_rendezvous.h"

#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <thread>

#include "comm/core/host_identity.h"
#include "tests/support/catch.h"

namespace ddp::detail {
namespace {

using namespace std::chrono_literals;

// Of each rank; ranks whose host is "" do not come, of an error the text is `why_not`.
std::vector<ShmRendezvous> meet_all(const std::vector<std::string>& hosts, c10d::Store& store,
                                    std::chrono::milliseconds timeout = 20s) {
  std::vector<ShmRendezvous> meetings(hosts.size());
  std::vector<std::thread> threads;
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    if (hosts[rank].empty()) continue;
    threads.emplace_back([&, rank] {
      const RankInfo info{.rank = static_cast<int>(rank), .world_size = static_cast<int>(hosts.size())};
      try {
        meetings[rank] = shm_rendezvous(info, hosts[rank], store, timeout);
      } catch (const std::exception& error) {
        meetings[rank].why_not = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return meetings;
}

TEST_CASE("ShmRendezvous: ranks of one host share one segment") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto meetings = meet_all({"a", "a", "a"}, *store);
  for (const ShmRendezvous& meeting : meetings) {
    CHECK(meeting.why_not.empty());
    CHECK_FALSE(meeting.python);
    CHECK(meeting.hosts == std::vector{0, 0, 0});
    REQUIRE(meeting.segment);
    CHECK(meeting.segment->ranks() == 3);
  }
  meetings[1].segment->block(2).taken.store(7);
  CHECK(meetings[0].segment->block(2).taken.load() == 7);
}

TEST_CASE("ShmRendezvous: each host has a segment for its ranks, one that is alone has none") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto meetings = meet_all({"b", "a", "a", "b", "c"}, *store);
  for (const ShmRendezvous& meeting : meetings) CHECK(meeting.hosts == std::vector{0, 1, 1, 0, 2});
  for (const size_t rank : {0, 1, 2, 3}) {
    REQUIRE(meetings[rank].segment);
    CHECK(meetings[rank].segment->ranks() == 2);
  }
  CHECK_FALSE(meetings[4].segment);
  meetings[0].segment->block(1).taken.store(7);
  CHECK(meetings[3].segment->block(1).taken.load() == 7);
  CHECK(meetings[1].segment->block(1).taken.load() == 0);
}

TEST_CASE("ShmRendezvous: a rank that has gloo's key and no other runs Python, and nobody waits for it") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::thread python([&] {
    std::this_thread::sleep_for(30ms);  // the others wait already
    store->set("0/1", std::vector<uint8_t>{1});
  });
  const auto before = std::chrono::steady_clock::now();
  const auto meetings = meet_all({"a", "", "a"}, *store, 60s);
  CHECK(std::chrono::steady_clock::now() - before < 10s);
  python.join();
  for (const size_t rank : {0, 2}) {
    CHECK(meetings[rank].python == 1);
    CHECK_FALSE(meetings[rank].segment);
    CHECK(meetings[rank].why_not.empty());
  }
}

TEST_CASE("ShmRendezvous: where a rank does not come all give up at the timeout") {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  for (const ShmRendezvous& meeting : meet_all({"a", "", "a"}, *store, 100ms)) {
    CHECK((meeting.why_not.empty() || meeting.why_not == "the ranks have not connected within 100 ms"));
    CHECK_FALSE(meeting.segment);
  }
}

TEST_CASE("ShmRendezvous: a text of the environment keeps ranks of one host apart") {
  const auto host = [](const std::string& text) {
    return host_identity(
        [&](const std::string& name) { return name == "DDPRUN_SHM_HOST" ? std::optional(text) : std::nullopt; });
  };
  CHECK(host("1") == host("1"));
  CHECK(host("1") != host("2"));
  CHECK(host("").size() > 20);
}

}  // namespace
}  // namespace ddp::detail
