// A store for tests of what talks to it.
#pragma once

#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <chrono>

namespace ddp::test {

/// torch's own, on a free port of 127.0.0.1.
inline c10::intrusive_ptr<c10d::TCPStore> make_store_server(std::chrono::milliseconds timeout) {
  c10d::TCPStoreOptions options;
  options.port = 0;
  options.isServer = true;
  options.waitWorkers = false;
  options.timeout = timeout;
  return c10::make_intrusive<c10d::TCPStore>("127.0.0.1", options);
}

}  // namespace ddp::test
