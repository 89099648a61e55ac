// Settings of DistributedDataParallel.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <ddprun/comm/gradient_bucket.h>

namespace ddp {

/// A number of bytes, the default, or kAutoBucketCap. An integer converts to it.
class BucketCap {
 public:
  /// 25 MiB, as in Python.
  static constexpr int64_t kDefaultBytes = int64_t{25} << 20;

  /// The default size.
  constexpr BucketCap() = default;
  /// About `bytes` bytes.
  constexpr BucketCap(int64_t bytes) : bytes_(bytes), is_default_(false) {}
  /// kAutoBucketCap.
  static constexpr BucketCap automatic() {
    BucketCap cap(kDefaultBytes);
    cap.is_automatic_ = true;
    return cap;
  }

  constexpr int64_t bytes() const { return bytes_; }         ///< the size, or the first size tried if it is automatic
  constexpr bool is_default() const { return is_default_; }  ///< no size was given
  /// Whether the size is chosen from measurements.
  constexpr bool is_automatic() const { return is_automatic_; }

 private:
  int64_t bytes_ = kDefaultBytes;
  bool is_default_ = true;
  bool is_automatic_ = false;
};

/// Bucket size chosen from measurements in the first iterations, the same on all ranks.
inline constexpr BucketCap kAutoBucketCap = BucketCap::automatic();

/// One parameter or buffer.
struct NamedTensor {
  std::string name{};   ///< as in the model's named_parameters() or named_buffers()
  at::Tensor tensor{};  ///< the parameter or buffer itself, which is shared
};

/// Parameters whose reduction waits for one other parameter's gradient; see DdpOptions::delayed.
struct DelayedParameters {
  /// Names as in the model's named_parameters().
  std::vector<std::string> names{};
  /// The parameter whose gradient starts the reduction of all of `names`; usually one whose gradient comes last.
  std::string trigger{};
};

/// Settings of DistributedDataParallel; all ranks need the same. Defaults are Python's unless stated.
struct DdpOptions {
  /// Gradients are collected into buckets of about this many bytes and reduced a bucket at a time. kAutoBucketCap
  /// measures some sizes in the first iterations and takes the best; sums over three or more ranks then may round
  /// differently from run to run.
  BucketCap bucket_cap_bytes{};
  /// Cap of the bucket that becomes ready first, smaller so that communication starts early; never above
  /// bucket_cap_bytes. Unset, it is Python's: 1 MiB where bucket_cap_bytes is left at its default (or automatic),
  /// else bucket_cap_bytes. Set it to bucket_cap_bytes to have no small bucket.
  std::optional<int64_t> first_bucket_bytes{};
  /// The cap of each bucket in bytes, in the order in which the gradients become ready. The last cap applies to all
  /// further buckets. If not empty, it replaces bucket_cap_bytes and first_bucket_bytes.
  std::vector<int64_t> bucket_cap_bytes_list{};
  /// For models whose forward may leave parameters unused: walks the autograd graph of each forward's outputs and does
  /// not wait for the gradients of parameters that are not in it. Such a parameter gets the gradient of the ranks that
  /// used it, and keeps its gradient if no rank used it. Costs a walk over the graph and a copy of the outputs per
  /// step.
  bool find_unused_parameters = false;
  /// The graph is the same in every iteration: the first one shows which parameters are unused or used several times
  /// (as by re-entrant checkpointing), and in later ones communication overlaps with backward as usual.
  bool static_graph = false;
  /// Gradients are views into the communication buckets, which saves the memory and time of one copy of all gradients.
  /// The program sees no difference: gradients that it keeps do not change, and optimizer.zero_grad() works with both
  /// values of set_to_none. Double backward through .grad() is not supported. (Python's default is false, and its true
  /// overwrites kept gradients.)
  bool gradient_as_bucket_view = true;
  /// Broadcasts the model's buffers (batch norm statistics) from rank 0, at construction and before a forward that
  /// follows a synchronised one. At the end of join() the buffers of the last rank are broadcast.
  bool broadcast_buffers = true;
  /// If set, it replaces broadcast_buffers for forwards and join(). At construction, buffers are then broadcast if
  /// init_sync is true, whatever broadcast_buffers is. Unset: broadcast_buffers applies.
  std::optional<bool> forward_sync_buffers{};
  /// At construction, compares the model with those of the other ranks and copies rank 0's values. If false, the
  /// program must give all ranks equal values.
  bool init_sync = true;
  /// With find_unused_parameters: a bucket all of whose parameters are unused on this rank is not reduced. Only for
  /// models that use the same parameters on all ranks.
  bool skip_all_reduce_unused_params = false;
  /// Gradients are copied into a bucket together when it is full, in a few kernels instead of one or two per
  /// parameter: for many small parameters. LibTorch 2.12 or newer. Unset (Python's is false): on the CPU where
  /// parameters have 16 KiB or less on average and the number of ranks is a power of two, for which the bits are the
  /// same.
  std::optional<bool> batched_grad_copy{};
  /// Gradients are put into their buckets by this library instead of c10d::Reducer, with less overhead and the same
  /// bits, as soon as the first step has shown their order. Unset: used where possible. It does not support
  /// find_unused_parameters, static_graph, communication hooks, gradient_as_bucket_view = false, batched_grad_copy =
  /// true, lazy_bucket_allocation, sparse or complex gradients, or devices other than the CPU; with true, these are
  /// errors. c10d::Reducer performs the steps inside join() and those with create_graph. Ranks may have different
  /// values. Not in Python.
  std::optional<bool> own_engine{};
  /// A bucket's memory is allocated when its gradients are there and released after the backward: less memory at the
  /// peak. LibTorch 2.15 or newer.
  bool lazy_bucket_allocation = false;
  /// Names (as in named_parameters() and named_buffers()) of parameters and buffers that the wrapper ignores
  /// completely.
  std::vector<std::string> ignored{};
  /// Parameters that are reduced together when the gradient of `trigger` is ready, instead of in buckets. Not allowed
  /// with join(). In a job with ranks that run Python they are reduced under no_sync() too, as in Python.
  DelayedParameters delayed{};
  /// Replaces the all-reduce of each bucket. <ddprun/ddp/comm_hooks.h> has ready-made hooks. register_comm_hook() does
  /// the same later.
  CommHook comm_hook{};
  /// Names of parameters after which a bucket ends; they replace the sizes as soon as the order of the gradients is
  /// known. Python has no such option, so no rank may run Python.
  std::vector<std::string> bucket_ends{};
  /// Checks every bucket for NaN and infinity before it is reduced. If a rank finds one, its backward throws an error
  /// that names the parameter. Costs a pass over the gradients (on CUDA a wait for the device as well). Not in Python.
  bool check_gradients = false;
};

}  // namespace ddp
