// Settings of DistributedDataParallel.
#pragma once

#include <cstdint>

namespace ddp {

/// Settings of DistributedDataParallel; all ranks need the same. Defaults are Python's unless stated.
struct DdpOptions {
  /// Gradients are collected into buckets of about this many bytes and reduced a bucket at a time.
  int64_t bucket_cap_bytes = int64_t{25} << 20;
  /// Cap of the bucket that becomes ready first, smaller so that communication starts early; never above
  /// bucket_cap_bytes. (Python has this only where its bucket_cap_mb is left at the default.)
  int64_t first_bucket_bytes = int64_t{1} << 20;
  /// Let gradients lie in the communication buckets: saves a copy of all gradients in time and memory. Safe with
  /// optimizer.zero_grad() of both kinds; double backward through .grad() is not supported. (Python's default is
  /// false.)
  bool gradient_as_bucket_view = true;
  /// Broadcast the model's buffers (batch norm statistics) from rank 0 at construction and before a forward that
  /// follows a synchronised one.
  bool broadcast_buffers = true;
  /// Compare the parameters' shapes and dtypes with rank 0's at construction and take its values. Without it every rank
  /// must start from equal ones by itself.
  bool init_sync = true;
};

}  // namespace ddp
