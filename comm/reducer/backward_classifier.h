// Internal: decides whether a backward's gradients are reduced, by the forwards of the wrapper that it belongs to.
// Python's DDP reduces the first backward after a forward and leaves every other one local, without a word.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/SmallVector.h>

#include <cstdint>
#include <string>
#include <vector>

#include "comm/versions/autograd_node.h"

namespace ddp::detail {

/// What is done with the gradients of one backward.
enum class BackwardKind {
  kReduce,          ///< the first backward after a forward that reduces
  kReduceAgain,     ///< of such a forward, too, but the engine has finished a reduction since
  kLocal,           ///< of a forward under no_sync()
  kWithoutForward,  ///< of no forward of the wrapper that is known
};

/// Knows a forward by the autograd nodes of its outputs. Not thread-safe.
class BackwardClassifier {
 public:
  /// Records a forward with gradients. `reduces`: it ran outside of no_sync(). `known`: `outputs` are all tensors of
  /// its output.
  void add_forward(bool reduces, const std::vector<at::Tensor>& outputs, bool known);

  /// Of the backward that runs in this thread. `sync_enabled`: it runs outside of no_sync().
  BackwardKind classify(bool sync_enabled) const;

  /// More than one forward waits for its reduction.
  bool has_several_pending() const { return outstanding_ > 1; }

  /// Call in the backward that has completed a reduction.
  void finish_reduction();

  /// Call when the wrapper ends. A backward of a reducing forward that accumulates into `parameters` throws
  /// std::logic_error with `message` from now on, since nothing would reduce its gradients.
  void refuse_backwards(const std::vector<at::Tensor>& parameters, const std::string& message) const;

  /// Whether the backward that runs in this thread has used every output of the forwards whose reduction is not
  /// finished, so that no other backward can bring their missing gradients. False where outputs are not known.
  bool uses_all_outputs() const;

 private:
  struct ForwardRecord {
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
  bool is_of_local_forwards_only() const;
  void drop_expired();

  std::vector<ForwardRecord> forwards_;
  size_t drop_at_ = 8;       // number of forwards at which those without a graph are looked for
  int64_t outstanding_ = 0;  // reducing forwards since the last forward that followed a finished reduction
  bool armed_ = false;       // a reducing forward since the last finished reduction
  bool has_local_ = false;   // some of forwards_ ran under no_sync()
};

}  // namespace ddp::detail
