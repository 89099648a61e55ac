// Messages between ranks through shared memory, and what becomes of operations whose ranks go. No LibTorch.
#include <atomic>
#include <chrono>
#include <string>

#include "comm/shm/mailbox.h"
#include "tests/comm/shm_ranks.h"
#include "tests/support/catch.h"
#include "tests/support/rank_checks.h"

namespace ddp::shm {
namespace {

using namespace std::chrono_literals;
using test::bytes_of;
using test::run_shm_ranks;
using test::ShmRank;
using Direction = Message::Direction;
using Bytes = std::vector<unsigned char>;

std::shared_ptr<Message> message(Direction direction, int peer, uint64_t tag, Bytes& data) {
  return std::make_shared<Message>(direction, peer, tag, bytes_of(data), data.size());
}

Bytes text(int from, int to, size_t number, size_t bytes) {
  Bytes data(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    data[i] = static_cast<unsigned char>(i * 31 + number * 7 + static_cast<size_t>(from * 3 + to));
  }
  return data;
}

template <typename Call>
std::string error_of(const Call& call) {
  try {
    call();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "";
}

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

TEST_CASE("ShmEngine: whoever waits for a rank that waits itself names the one that both wait for") {
  std::atomic<int> ended{0};
  run_shm_ranks(3, [&](const ShmRank& self) {
    if (self.place.rank == 1) {
      while (ended < 2) std::this_thread::sleep_for(1ms);
      return;
    }
    // Rank 2 waits for rank 0, which waits for rank 1 and has more time left when rank 2 has none.
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
  run_shm_ranks(3, [&](const ShmRank& self) {
    if (self.place.rank == 2) {
      while (ended < 2) std::this_thread::sleep_for(1ms);
      return;
    }
    const auto operation = barrier();
    operation->set_timeout(self.place.rank == 0 ? 200ms : 60s);
    self.engine->start(operation);
    const std::string error = error_of([&] { self.finish(*operation); });
    RANK_INFO(error);
    RANK_CHECK(error.find("waiting for rank 2 (process ") != std::string::npos);
    RANK_CHECK((error.find("timed out after 200 ms") != std::string::npos));
    RANK_CHECK_FALSE(error_of([&] { self.run(barrier()); }).empty());
    ++ended;
  });
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
  std::atomic<bool> is_over{false};
  run_shm_ranks(2, [&](const ShmRank& self) {
    if (self.place.rank == 1) {
      while (!is_over) std::this_thread::sleep_for(1ms);
      return;
    }
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
    is_over = true;
  });
  test::report_rank_checks();
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
        RANK_CHECK(error_of([&] { self.finish(*operations[i]); }) == "");
        RANK_CHECK(data[i] == text(2, 0, i, bytes));
      }
    });
  }
  test::report_rank_checks();
}

TEST_CASE("ShmEngine: a call that runs in another thread while its group is closed comes to its end") {
  run_shm_ranks(2, [&](const ShmRank& self) {
    if (self.place.rank == 1) {
      std::this_thread::sleep_for(100ms);
      return self.run(barrier());
    }
    std::thread caller([&] { RANK_CHECK(error_of([&] { self.run(barrier()); }) == ""); });
    std::this_thread::sleep_for(50ms);
    self.engine->stop("closed", /*has_failed=*/false);
    caller.join();
  });
  test::report_rank_checks();
}

TEST_CASE("ShmEngine: a group that is being closed waits no longer than its operations, nor when it is aborted") {
  for (const bool is_aborted : {false, true}) {
    std::atomic<bool> is_over{false};
    run_shm_ranks(2, [&](const ShmRank& self) {
      if (self.place.rank == 1) {
        while (!is_over) std::this_thread::sleep_for(1ms);
        return;
      }
      const auto operation = barrier();
      operation->set_timeout(is_aborted ? 600'000ms : 200ms);
      self.engine->start(operation);
      std::thread stopper([&] { self.engine->stop("closed", /*has_failed=*/false); });
      if (is_aborted) {
        std::this_thread::sleep_for(50ms);
        self.engine->stop("aborted", /*has_failed=*/true);
      }
      const std::string error = error_of([&] { self.finish(*operation); });
      RANK_INFO(error);
      RANK_CHECK((is_aborted ? error == "closed" : error.starts_with("timed out after 200 ms waiting for rank 1")));
      stopper.join();
      is_over = true;
    });
  }
  test::report_rank_checks();
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
