// What becomes of operations whose ranks do not come, give up or close their group. No LibTorch.
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
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
using test::bytes_of;
using test::error_of;
using test::message;
using test::run_shm_ranks;
using test::ShmRank;
using test::text;
using Direction = Message::Direction;

// `body` is rank 0's; rank 1 lives until that is over, and takes part in nothing.
void run_beside_an_idle_rank(const std::function<void(const ShmRank&)>& body) {
  std::atomic<bool> is_over{false};
  run_shm_ranks(2, [&](const ShmRank& self) {
    if (self.place.rank == 0) {
      body(self);
      is_over = true;
    }
    while (!is_over) std::this_thread::sleep_for(1ms);
  });
  test::report_rank_checks();
}

TEST_CASE("ShmEngine: whoever waits for a rank that waits itself names the one that both wait for") {
  std::atomic<int> ended{0};
  std::atomic<int> has_come{0};
  run_shm_ranks(3, [&](const ShmRank& self) {
    if (self.place.rank == 1) {
      while (ended < 2) std::this_thread::sleep_for(1ms);
      return;
    }
    // Rank 2 waits for rank 0, which waits for rank 1 and has more time left when rank 2 has none. Both begin together.
    ++has_come;
    while (has_come < 2) std::this_thread::sleep_for(1ms);
    std::vector<float> data(1);
    const auto message =
        std::make_shared<Message>(Message::Direction::kReceive, (self.place.rank + 1) % 3, 1, test::bytes_of(data), 4);
    message->set_timeout(self.place.rank == 0 ? 4s : 2s);
    self.engine->start(message);
    const std::string error = error_of([&] { self.finish(*message); });
    RANK_INFO(error);
    const size_t first = error.find("waiting for rank 0 (process ");
    const size_t cause = error.find("waits for rank 1 (process ");
    RANK_CHECK((first != std::string::npos) == (self.place.rank == 2));
    RANK_CHECK((cause != std::string::npos) == (self.place.rank == 2));
    if (self.place.rank == 0) RANK_CHECK(error.find("waiting for rank 1 (process ") != std::string::npos);
    ++ended;
  });
  test::report_rank_checks();
}

TEST_CASE("ShmEngine: a rank that does not come is named when the time is over, and the others hear of it") {
  std::atomic<int> ended{0};
  std::atomic<bool> has_rank_1_begun{false};
  run_shm_ranks(3, [&](const ShmRank& self) {
    if (self.place.rank == 2) {
      while (ended < 2) std::this_thread::sleep_for(1ms);
      return;
    }
    const auto operation = barrier();
    operation->set_timeout(self.place.rank == 0 ? 200ms : 60s);
    // When the group has failed nothing can be begun.
    while (self.place.rank == 0 && !has_rank_1_begun) std::this_thread::sleep_for(1ms);
    self.engine->start(operation);
    if (self.place.rank == 1) has_rank_1_begun = true;
    const std::string error = error_of([&] { self.finish(*operation); });
    RANK_INFO(error);
    RANK_CHECK(error.find("waiting for rank 2 (process ") != std::string::npos);
    RANK_CHECK((error.find("timed out after 200 ms") != std::string::npos));
    RANK_CHECK(error_of([&] { self.run(barrier()); }) != "no error");
    ++ended;
  });
  test::report_rank_checks();
}

TEST_CASE("ShmEngine: the time that an operation spends behind others does not count") {
  constexpr auto kTimeout = 1s;
  const Segment segment = Segment::create(2);
  const std::vector<std::shared_ptr<Engine>> engines{Engine::make(segment, 0, /*shares_processors=*/false),
                                                     Engine::make(segment, 1, /*shares_processors=*/false)};
  std::vector<JointPtr> operations;
  const auto start = [&](const std::shared_ptr<Engine>& engine, std::chrono::milliseconds timeout) {
    operations.push_back(barrier());
    operations.back()->set_timeout(timeout);
    engine->start(operations.back());
  };
  start(engines[0], 600s);
  start(engines[0], kTimeout);
  const auto latest = Operation::Clock::now() + 3 * kTimeout / 2;
  CHECK_FALSE(engines[0]->wait(*operations[1], 3 * kTimeout / 2));
  CHECK(Operation::Clock::now() >= latest);
  for (int i = 0; i < 2; ++i) start(engines[1], 600s);
  for (size_t i = 0; i < operations.size(); ++i) {
    CHECK(engines[i / 2]->wait(*operations[i], 20s));
    CHECK_FALSE(operations[i]->error());
  }
  // When its turn has come it does.
  start(engines[0], kTimeout / 10);
  CHECK(engines[0]->wait(*operations.back(), 20s));
  CHECK(operations.back()->error());
  for (const auto& engine : engines) engine->stop("done", /*has_failed=*/true);
}

TEST_CASE("ShmEngine: a rank that comes when the others have given up hears why, and does not end alone") {
  for (const bool is_waited_for : {false, true}) {
    std::atomic<bool> is_over{false};
    run_shm_ranks(2, [&](const ShmRank& self) {
      int32_t number = 1;
      const auto operation = all_reduce(reinterpret_cast<std::byte*>(&number), 1,
                                        {.dtype = DType::kInt32, .op = Operator::kSum}, self.place);
      operation->set_timeout(100ms);
      if (self.place.rank == 0) {
        RANK_CHECK(error_of([&] { self.run(operation); }).starts_with("timed out after 100 ms"));
        is_over = true;
        return;
      }
      while (!is_over) std::this_thread::sleep_for(1ms);
      const std::string error = error_of([&] {
        if (is_waited_for) return self.run(operation);
        self.engine->start(operation);
        self.finish(*operation);
      });
      RANK_INFO(error);
      RANK_CHECK(error.find("rank 0 (process ") == 0);
      RANK_CHECK(error.find(" gave up: timed out after 100 ms waiting for rank 1 (process ") != std::string::npos);
    });
  }
  test::report_rank_checks();
}

TEST_CASE("ShmEngine: who waits for a rank that closes its group is told at once") {
  run_shm_ranks(2, [](const ShmRank& self) {
    if (self.place.rank == 0) return;  // run_shm_ranks() stops its engine
    const std::string error = error_of([&] { self.run(barrier()); });
    RANK_CHECK(error.find("rank 0 (process ") != std::string::npos);
    RANK_CHECK(error.find("has closed its group") != std::string::npos);
  });
  test::report_rank_checks();
}

TEST_CASE("ShmEngine: an operation that is waited for without a limit ends when another thread stops its engine") {
  run_beside_an_idle_rank([](const ShmRank& self) {
    const auto operation = barrier();
    operation->set_timeout(600s);
    self.engine->start(operation);
    std::thread stopper([&] {
      std::this_thread::sleep_for(50ms);  // some of it is spent in the wait, whichever way that takes
      self.engine->stop("nobody wants it any more", /*has_failed=*/true);
    });
    const std::string error = error_of([&] { self.finish(*operation); });
    stopper.join();
    RANK_CHECK(error == "nobody wants it any more");
  });
}

TEST_CASE("ShmEngine: a rank that closes its group first does what it has begun with the others") {
  for (const size_t bytes : {size_t{8}, size_t{3} << 20}) {
    run_shm_ranks(3, [bytes](const ShmRank& self) {
      std::vector<Bytes> data(4);
      std::vector<JointPtr> operations;
      for (size_t i = 0; i < data.size(); ++i) {
        data[i] = self.place.rank == 2 ? text(2, 0, i, bytes) : Bytes(bytes);
        operations.push_back(broadcast(bytes_of(data[i]), bytes, 2, self.place));
      }
      // The others are in the middle of it, have not begun, or wait for it.
      if (self.place.rank != 0) std::this_thread::sleep_for(self.place.rank * 20ms);
      for (const JointPtr& operation : operations) self.engine->start(operation);
      if (self.place.rank != 1) self.engine->stop("closed", /*has_failed=*/false);
      for (size_t i = 0; i < data.size(); ++i) {
        RANK_CHECK(error_of([&] { self.finish(*operations[i]); }) == "no error");
        RANK_CHECK(data[i] == text(2, 0, i, bytes));
      }
    });
  }
  test::report_rank_checks();
}

TEST_CASE("ShmEngine: a call that runs in another thread while its group is closed comes to its end") {
  std::atomic<bool> is_closing{false};
  run_shm_ranks(2, [&](const ShmRank& self) {
    if (self.place.rank == 1) {
      while (!is_closing) std::this_thread::sleep_for(1ms);
      std::this_thread::sleep_for(50ms);
      return self.run(barrier());
    }
    // Begun before the group is closed, also where the thread that waits for it comes late.
    const auto operation = barrier();
    self.engine->start(operation);
    std::thread caller([&] { RANK_CHECK(error_of([&] { self.finish(*operation); }) == "no error"); });
    std::this_thread::sleep_for(50ms);
    is_closing = true;
    self.engine->stop("closed", /*has_failed=*/false);
    caller.join();
  });
  test::report_rank_checks();
}

TEST_CASE("ShmEngine: a group that is being closed waits no longer than its operations, nor when it is aborted") {
  for (const bool is_aborted : {false, true}) {
    run_beside_an_idle_rank([is_aborted](const ShmRank& self) {
      const auto operation = barrier();
      operation->set_timeout(is_aborted ? 600'000ms : 200ms);
      self.engine->start(operation);
      std::atomic<bool> is_closing{false};
      std::thread stopper([&] {
        is_closing = true;
        self.engine->stop("closed", /*has_failed=*/false);
      });
      if (is_aborted) {
        while (!is_closing) std::this_thread::sleep_for(1ms);
        std::this_thread::sleep_for(50ms);
        self.engine->stop("aborted", /*has_failed=*/true);
      }
      const std::string error = error_of([&] { self.finish(*operation); });
      RANK_INFO(error);
      // The thread that closes may come after the one that aborts; the first call gives the reason.
      RANK_CHECK((is_aborted ? error == "closed" || error == "aborted"
                             : error.starts_with("timed out after 200 ms waiting for rank 1")));
      stopper.join();
    });
  }
}

TEST_CASE("ShmEngine: a group is closed although messages of it are awaited that nobody sends") {
  run_shm_ranks(2, [&](const ShmRank& self) {
    Bytes data(100);
    const auto received = message(Direction::kReceive, 1 - self.place.rank, 0, data);
    self.engine->start(received);
    self.engine->start(barrier());
    self.engine->stop("closed", /*has_failed=*/false);
    RANK_CHECK(error_of([&] { self.finish(*received); }) == "closed");
  });
  test::report_rank_checks();
}

TEST_CASE("ShmEngine: what has been sent before its rank left is still taken") {
  run_shm_ranks(2, [](const ShmRank& self) {
    Bytes data = self.place.rank == 0 ? text(0, 1, 0, 100'000) : Bytes(100'000);
    self.run(broadcast(bytes_of(data), data.size(), 0, self.place));
    RANK_CHECK(data == text(0, 1, 0, 100'000));
  });
  test::report_rank_checks();
}

}  // namespace
}  // namespace ddp::shm
