// Ranks of shared memory as threads of the test, each with an engine of its own.
#pragma once

#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/shm/collectives.h"
#include "comm/shm/engine.h"
#include "comm/shm/mailbox.h"

namespace ddp::test {

struct ShmRank {
  std::shared_ptr<shm::Engine> engine;
  shm::Place place;

  /// Starts an operation, waits for it and throws what it failed with.
  void run(const shm::JointPtr& operation) const {
    engine->run(operation);
    if (operation->error()) std::rethrow_exception(operation->error());
  }
  void finish(const shm::Operation& operation) const {
    engine->wait(operation);
    if (operation.error()) std::rethrow_exception(operation.error());
  }
};

/// Runs `body` on each of `ranks` ranks. They share one mapping, so that ThreadSanitizer sees what they do to it, or,
/// with `attach`, have one each.
inline void run_shm_ranks(int ranks, const std::function<void(const ShmRank&)>& body, bool attach = false) {
  const shm::Segment segment = shm::Segment::create(ranks);
  const bool shares_processors = shm::must_share_processors(ranks);
  std::vector<std::shared_ptr<shm::Engine>> engines;
  for (int rank = 0; rank < ranks; ++rank) {
    engines.push_back(
        shm::Engine::make(attach ? shm::Segment::attach(segment.ticket()) : segment, rank, shares_processors));
  }
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      const ShmRank self{engines[static_cast<size_t>(rank)], {.rank = rank, .ranks = ranks}};
      body(self);
      self.engine->stop("done", /*has_failed=*/false);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

using Bytes = std::vector<unsigned char>;

template <typename T>
std::byte* bytes_of(std::vector<T>& values) {
  return reinterpret_cast<std::byte*>(values.data());
}

inline std::shared_ptr<shm::Message> message(shm::Message::Direction direction, int peer, uint64_t tag, Bytes& data) {
  return std::make_shared<shm::Message>(direction, peer, tag, bytes_of(data), data.size());
}

/// What `from` sends to `to`, another one for each number.
inline Bytes text(int from, int to, size_t number, size_t bytes) {
  Bytes data(bytes);
  for (size_t i = 0; i < bytes; ++i) {
    data[i] = static_cast<unsigned char>(i * 31 + number * 7 + static_cast<size_t>(from * 3 + to));
  }
  return data;
}

}  // namespace ddp::test
