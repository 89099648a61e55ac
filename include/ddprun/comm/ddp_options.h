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

  constexpr int64_t bytes() const { return bytes_; }         ///< the size to begin with where it is automatic
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
  /// Caps of the single buckets in bytes, in the order in which their gradients become ready; the last one holds for
  /// all further buckets. In place of bucket_cap_bytes and first_bucket_bytes. Empty: those.
  std::vector<int64_t> bucket_cap_bytes_list{};
  /// For models of which a forward may leave parameters unused: looks through the autograd graph of each forward's
  /// outputs and doesn't wait for the gradients of the others. Their gradients become those of the ranks that used
  /// them, and stay as they are if no rank did. Costs a walk over the graph and a copy of the outputs per step.
  bool find_unused_parameters = false;
  /// The graph is the same in every iteration: the first one shows which parameters are unused or used several times
  /// (as by re-entrant checkpointing), and later ones overlap as usual.
  bool static_graph = false;
  /// Gradients lie in the communication buckets, which saves a copy of all gradients in time and memory. A program
  /// sees no difference: gradients that it keeps hold their values, and optimizer.zero_grad() of both kinds works.
  /// Double backward through .grad() is not supported. (Python's default is false, and its true overwrites kept
  /// gradients.)
  bool gradient_as_bucket_view = true;
  /// Broadcast the model's buffers (batch norm statistics) from rank 0 at construction and before a forward that
  /// follows a synchronised one; those of the last rank at the end of join().
  bool broadcast_buffers = true;
  /// The same for forwards and join() alone, in place of broadcast_buffers: at construction buffers are broadcast
  /// then (with init_sync), whatever broadcast_buffers says. Unset: as broadcast_buffers says.
  std::optional<bool> forward_sync_buffers{};
  /// Compare the model with the other ranks' at construction and take rank 0's values. Without it every rank must
  /// start from equal ones by itself.
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
  /// bits, as soon as the first step has shown their order. Unset: where it can. It cannot, and refuses if demanded,
  /// find_unused_parameters, static_graph, communication hooks, gradient_as_bucket_view = false,
  /// batched_grad_copy = true, lazy_bucket_allocation, sparse or complex gradients, other devices than the CPU. Steps
  /// inside join() and those with create_graph are c10d's. Ranks may differ. Not in Python.
  std::optional<bool> own_engine{};
  /// A bucket's memory is allocated when its gradients are there and released after the backward: less memory at the
  /// peak. LibTorch 2.15 or newer.
  bool lazy_bucket_allocation = false;
  /// Names (as in named_parameters() and named_buffers()) that the wrapper leaves alone entirely.
  std::vector<std::string> ignored{};
  /// Parameters that are reduced as one piece when `trigger`'s gradient is there, instead of in buckets. Not with
  /// join(). In a job with ranks that run Python they are reduced under no_sync() too, as there.
  DelayedParameters delayed{};
  /// Replaces the all-reduce of each bucket; see <ddprun/ddp/comm_hooks.h> for those that exist. Also
  /// register_comm_hook().
  CommHook comm_hook{};
  /// Names of parameters after which a bucket ends, in place of sizes, once the order of the gradients is known. Not
  /// in Python, so no rank may run it.
  std::vector<std::string> bucket_ends{};
  /// Looks for NaN and infinity in every bucket before it is reduced and fails the backward on the rank that has one,
  /// naming the parameter. Costs a pass over the gradients (on CUDA a wait for the device as well). Not in Python.
  bool check_gradients = false;
};

}  // namespace ddp
