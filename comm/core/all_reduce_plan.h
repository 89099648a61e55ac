// Which way an all-reduce goes. This is the one place that chooses, for calls of the program and for gradient buckets.
// Does not use LibTorch.
#pragma once

#include <cstddef>
#include <cstdint>

namespace ddp::detail {

/// What waits for an all-reduce.
enum class AllReduceWaiter : uint8_t {
  kCaller,    ///< the calling thread, at once
  kHandle,    ///< a thread that calls wait() of its Work, or no thread
  kFuture,    ///< what is chained to its future
  kBackward,  ///< the backward thread, by wait() of its Work, when all buckets have been started
};

/// What a connected backend for CPU tensors can do beyond c10d's interface; see AllReduceBackend.
struct AllReduceTraits {
  enum class InWait : uint8_t { kNone, kSmallFloats, kAll };

  bool in_call = false;            ///< reduces within the call, in the calling thread
  InWait in_wait = InWait::kNone;  ///< which sums it can start whose Work makes progress in wait() only
};

/// What is to be reduced.
struct AllReduceRequest {
  AllReduceWaiter waiter = AllReduceWaiter::kHandle;
  size_t bytes = 0;
  bool is_dense_on_cpu = false;
  bool is_contiguous_float = false;  ///< real floating-point numbers without gaps, in dense memory of the host
  bool fits_call = false;            ///< nothing of it needs more than in_call offers
};

enum class AllReducePlan : uint8_t {
  kInCall,   ///< AllReduceBackend::all_reduce_in_call(): no Work, no queue, no other thread
  kInWait,   ///< AllReduceBackend::all_reduce_in_wait(): the thread that waits does the work
  kBackend,  ///< Backend::allreduce() of the tensor's backend, without c10d's dispatcher, which costs as much as a sum
  kGroup,    ///< ProcessGroup::allreduce(): c10d's dispatcher finds the backend
};

/// Larger sums of two ranks over gloo gain nothing from an exchange of whole tensors.
inline constexpr size_t kMaxExchangedBytes = size_t{64} << 10;

constexpr AllReducePlan choose_all_reduce(const AllReduceTraits& backend, const AllReduceRequest& request) {
  if (!request.is_dense_on_cpu) return AllReducePlan::kGroup;
  if (request.waiter == AllReduceWaiter::kCaller && backend.in_call && request.fits_call) return AllReducePlan::kInCall;
  if (request.waiter != AllReduceWaiter::kBackward) return AllReducePlan::kBackend;
  const bool is_small_float = request.is_contiguous_float && request.bytes > 0 && request.bytes <= kMaxExchangedBytes;
  switch (backend.in_wait) {
    case AllReduceTraits::InWait::kAll:
      return AllReducePlan::kInWait;
    case AllReduceTraits::InWait::kSmallFloats:
      return is_small_float ? AllReducePlan::kInWait : AllReducePlan::kBackend;
    case AllReduceTraits::InWait::kNone:
      break;
  }
  return AllReducePlan::kBackend;
}

}  // namespace ddp::detail
