// Messages between ranks through shared memory. No LibTorch.
#include <atomic>
#include <chrono>
#include <string>

#include "tests/comm/shm_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/rank_checks.h"

namespace ddp::shm {
namespace {

using namespace std::chrono_literals;
using test::Bytes;
using test::bytes_of;
using test::error_of;
using test::message;
using test::run_shm_ranks;
using test::ShmRank;
using test::text;
using Direction = Message::Direction;

TEST_CASE("ShmMessages: all pairs exchange many messages of any size at once, taken in another order") {
  const std::vector<size_t> sizes{0, 1, 100, kChannelSlotBytes, kChannelSlotBytes + 1, 9 * kChannelSlotBytes + 5};
  constexpr size_t kEach = 200;  // more than may be announced
  for (const int ranks : {2, 4}) {
    run_shm_ranks(ranks, [&](const ShmRank& self) {
      std::vector<Bytes> sent;
      std::vector<Bytes> received;
      std::vector<Bytes> expected;
      std::vector<std::shared_ptr<Message>> started;
      const int own = self.place.rank;
      sent.reserve(kEach * 4);
      received.reserve(kEach * 4);
      for (int peer = 0; peer < ranks; ++peer) {
        if (peer == own) continue;
        for (size_t i = 0; i < kEach; ++i) {
          sent.push_back(text(own, peer, i, sizes[i % sizes.size()]));
          started.push_back(message(Direction::kSend, peer, i, sent.back()));
          self.engine->start(started.back());
        }
      }
      for (int peer = ranks - 1; peer >= 0; --peer) {
        if (peer == own) continue;
        for (size_t i = kEach; i-- > 0;) {
          expected.push_back(text(peer, own, i, sizes[i % sizes.size()]));
          received.emplace_back(expected.back().size());
          started.push_back(message(Direction::kReceive, peer, i, received.back()));
          self.engine->start(started.back());
        }
      }
      for (const auto& each : started) self.finish(*each);
      RANK_CHECK(received == expected);
      self.run(barrier());
    });
    test::report_rank_checks();
  }
}

TEST_CASE("ShmMessages: collectives and messages of one rank do not hold each other up") {
  run_shm_ranks(2, [](const ShmRank& self) {
    const int peer = 1 - self.place.rank;
    Bytes received(5);
    const auto receipt = message(Direction::kReceive, peer, 3, received);
    self.engine->start(receipt);
    for (int i = 0; i < 50; ++i) self.run(barrier());
    RANK_CHECK_FALSE(receipt->has_ended());
    self.run(barrier());  // nobody sends before the other one has looked
    Bytes sent = text(self.place.rank, peer, 0, 5);
    const auto dispatch = message(Direction::kSend, peer, 3, sent);
    self.engine->start(dispatch);
    self.finish(*receipt);
    self.finish(*dispatch);
    RANK_CHECK(received == text(peer, self.place.rank, 0, 5));
    self.run(barrier());
  });
  test::report_rank_checks();
}

TEST_CASE("ShmMessages: a message of another size than expected is refused with both sizes") {
  run_shm_ranks(2, [](const ShmRank& self) {
    Bytes data(self.place.rank == 0 ? 12 : 8);
    const auto each =
        message(self.place.rank == 0 ? Direction::kSend : Direction::kReceive, 1 - self.place.rank, 4, data);
    self.engine->start(each);
    if (self.place.rank == 1) {
      const std::string error = error_of([&] { self.finish(*each); });
      RANK_CHECK(error.find("rank 0 sent 12 bytes under tag 4, expected 8") != std::string::npos);
    }
    self.run(barrier());
  });
  test::report_rank_checks();
}

}  // namespace
}  // namespace ddp::shm
