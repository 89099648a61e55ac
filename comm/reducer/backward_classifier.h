// Internal: decides whether a backward's gradients are reduced, by the forwards of the wrapper that it belongs to.
// Python's DDP reduces the first backward after a forward and leaves every other one local, without a word.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "comm/reducer/forward_spans.h"
#include "comm/versions/autograd_node.h"

namespace ddp::detail {

/// What is done with the gradients of one backward.
enum class BackwardKind {
  kReduce,          ///< the first backward after a forward that reduces
  kReduceAgain,     ///< of such a forward, too, but the engine has finished a reduction since
  kLocal,           ///< of a forward under no_sync()
  kWithoutForward,  ///< of no forward of the wrapper that is known
};

/// Knows a forward by the autograd nodes that it has made, and by those of its outputs. Not thread-safe.
class BackwardClassifier {
 public:
  /// Call before a forward with gradients, in its thread.
  void begin_forward() { spans_.begin(); }
  /// Records a forward with gradients. `reduces`: it ran outside of no_sync(). `known`: `outputs` are all tensors of
  /// its output.
  void add_forward(bool reduces, const std::vector<at::Tensor>& outputs, bool known);

  /// Of the backward that runs in this thread. `sync_enabled`: it runs outside of no_sync().
  BackwardKind classify(bool sync_enabled) const;

  /// Whether the backward that runs in this thread belongs to the last forward that reduces, and to no other forward.
  bool is_of_last_reducing_only() const;

  /// Call in the backward that has completed a reduction.
  void finish_reduction();

  /// Call when the wrapper ends. A backward of a reducing forward that accumulates into `parameters` throws
  /// std::logic_error with `message` from now on, since nothing would reduce its gradients.
  void refuse_backwards(const std::vector<at::Tensor>& parameters, const std::string& message) const;

  /// Whether the backward that runs in this thread has used every output of the forwards whose reduction is not
  /// finished, so that no other backward can bring their missing gradients. False where outputs are not known.
  bool uses_all_outputs() const;

 private:
  // The forwards to which a backward belongs: at least one reducing forward, only local forwards, or no known forward.
  enum class Origin { kReducing, kLocal, kUnknown };
  struct ForwardRecord {
    int64_t number;
    bool reduces;
    bool known;
    bool finished = false;
    c10::SmallVector<versions::WeakNodePtr, 2> outputs{};  // weak: the graph belongs to the program
  };
  template <typename Test>
  static bool any_output(const ForwardRecord& forward, Test test);
  template <typename Test>
  bool any_output(bool reduces, Test test) const;
  bool last_is_local_and_unknown() const;
  Origin origin(bool sync_enabled) const;
  std::unordered_set<int64_t> forwards_of_backward() const;
  void drop_expired();

  std::vector<ForwardRecord> forwards_;
  ForwardSpans spans_;
  int64_t last_ = 0;           // number of the last forward
  int64_t last_reducing_ = 0;  // of the last that reduces
  size_t drop_threshold_ = 8;  // number of forwards at which those without a graph are looked for
  int64_t outstanding_ = 0;    // reducing forwards since the last forward that followed a finished reduction
  bool armed_ = false;         // a reducing forward since the last finished reduction
  bool has_local_ = false;     // there was a forward under no_sync()
};

}  // namespace ddp::detail
