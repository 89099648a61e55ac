// When an engine looks whether something has gone wrong, and what fails with a group. No LibTorch.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>
#include <vector>

#include "tests/comm/shm_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/errors.h"
#include "tests/support/rank_checks.h"

namespace ddp::shm {
namespace {

using namespace std::chrono_literals;
using test::Bytes;
using test::error_of;
using test::message;
using test::run_shm_ranks;
using test::ShmRank;
using Clock = Operation::Clock;
using Direction = Message::Direction;

// The memory of what is started outlives its engine.
struct Started {
  std::vector<std::shared_ptr<Operation>> operations;
  std::vector<Bytes> data;
};

// Starts some operations, until the group has failed.
void start_some(Engine& engine, bool are_messages, Started& started) {
  constexpr int kSome = 4;
  try {
    for (int i = 0; i < kSome; ++i) {
      if (are_messages) {
        const auto sent = message(Direction::kSend, 1, 7, started.data.emplace_back(8));
        engine.start(sent);
        started.operations.push_back(sent);
      } else {
        const auto joint = barrier();
        engine.start(joint);
        started.operations.push_back(joint);
      }
    }
  } catch (const std::runtime_error&) {  // that is why
  }
}

TEST_CASE("ShmTrouble: what another thread starts in the moment in which a group fails, fails with it") {
  constexpr int kTrials = 80;  // one in ten met the fault
  const bool are_messages = GENERATE(false, true);
  CAPTURE(are_messages);
  for (int trial = 0; trial < kTrials; ++trial) {
    const Segment segment = Segment::create(2);
    const auto engine = Engine::make(segment, 0, /*shares_processors=*/false);
    const auto other = Engine::make(segment, 1, /*shares_processors=*/false);
    Bytes before(8);
    Bytes received(8);
    const auto earlier = message(Direction::kSend, 1, 1, before);
    const auto receipt = message(Direction::kReceive, 0, 1, received);
    other->start(receipt);
    engine->start(earlier);
    engine->wait(*earlier);
    other->wait(*receipt);
    Started started;
    // It is the first one, whichever thread comes first: behind others it would wait for them, however long they have.
    const auto failing = barrier();
    failing->set_timeout(5ms);
    const auto begin = Clock::now();
    engine->start(failing);
    std::thread waiting([&] { engine->wait(*failing); });
    // It looks for the first time 10 ms after it has begun.
    const auto moment = begin + 9800us + std::chrono::microseconds(trial * 37 % 1200);
    std::this_thread::sleep_until(moment - 300us);
    while (Clock::now() < moment) {
    }
    start_some(*engine, are_messages, started);
    waiting.join();
    CHECK(failing->error());
    for (const auto& operation : started.operations) CHECK(engine->wait(*operation, 5s));
    engine->stop("done", /*has_failed=*/true);
    other->stop("done", /*has_failed=*/true);
  }
}

TEST_CASE("ShmTrouble: a message's time is over when it is, also while collectives go on") {
  const auto pause = GENERATE(0us, 2000us);
  CAPTURE(pause.count());
  std::atomic<bool> is_over{false};
  run_shm_ranks(2, [&](const ShmRank& self) {
    std::thread waiting;
    if (self.place.rank == 0) {
      waiting = std::thread([&] {
        Bytes data(4);
        const auto receipt = message(Direction::kReceive, 1, 5, data);
        self.engine->start(receipt);
        self.engine->limit(*receipt, 50ms);
        const std::string error = error_of([&] { self.finish(*receipt); });
        RANK_INFO(error);
        RANK_CHECK(error.starts_with("timed out after 50 ms waiting for rank 1"));
        is_over = true;
      });
    }
    const auto latest = Clock::now() + 20s;
    for (int64_t goes_on = 1; goes_on != 0;) {
      goes_on = self.place.rank == 1 || (!is_over && Clock::now() < latest) ? 1 : 0;
      self.run(all_reduce(reinterpret_cast<std::byte*>(&goes_on), 1, {.dtype = DType::kInt64, .op = Operator::kMin},
                          self.place));
      std::this_thread::sleep_for(pause);
    }
    RANK_CHECK(Clock::now() < latest);
    if (waiting.joinable()) waiting.join();
  });
  test::report_rank_checks();
}

}  // namespace
}  // namespace ddp::shm
