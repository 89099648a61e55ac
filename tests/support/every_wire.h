// Fixtures of tests that hold for every kind of connection, and for several world sizes.
#pragma once

#include <functional>

#include "tests/support/catch.h"
#include "tests/support/ranks.h"

namespace ddp::test {

/// A test runs once with each wire.
class EveryWire {
 protected:
  void run(int size, const std::function<void(const GroupHandle&)>& body) const {
    run_ranks(size, body, {.wire = wire_});
  }

  const Wire wire_ = GENERATE(from_range(wires()));
  FIXTURE_INFO("wire: " << wire_);
};

/// A test runs once with each wire and one to four ranks.
class EveryWireAndSize {
 protected:
  int size() const { return size_; }
  void run(const std::function<void(const GroupHandle&)>& body) const { run_ranks(size_, body, {.wire = wire_}); }

  const Wire wire_ = GENERATE(from_range(wires()));
  const int size_ = GENERATE(1, 2, 3, 4);
  FIXTURE_INFO("wire: " << wire_ << ", ranks: " << size_);
};

}  // namespace ddp::test
