// Internal: finds the forward in which a node of autograd's graph was made. Autograd numbers the nodes that a thread
// makes, so those of a forward are a range of numbers. Unlike a search from the outputs this finds what a forward has
// left elsewhere (in a member of the module, in an output of unknown type), and the parts of its graph that a gradient
// penalty goes through.
#pragma once

#include <torch/csrc/autograd/function.h>

#include <cstdint>
#include <vector>

namespace ddp::detail {

/// Not thread-safe. Nodes that a forward makes in other threads than its own are not found.
class ForwardSpans {
 public:
  /// The nodes of one forward: those of `thread` with numbers in [begin, end).
  struct Span {
    uint64_t thread;
    uint64_t begin;
    uint64_t end;
    int64_t forward;  // its number
    bool reduces;     // it ran outside of no_sync()
  };

  /// Call before a forward, in its thread.
  void begin();
  /// Call after it: it has the number `forward`, above those before. Only the last forwards are kept.
  void end(int64_t forward, bool reduces);

  /// The forward that made `node`; null if no known forward made it.
  const Span* find(const torch::autograd::Node& node) const;

 private:
  std::vector<Span> spans_;  // by thread and begin
  uint64_t thread_ = 0;      // of the forward that has begun; autograd counts threads from 1
  uint64_t begin_ = 0;
};

}  // namespace ddp::detail
