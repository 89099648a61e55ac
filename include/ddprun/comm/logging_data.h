// What DistributedDataParallel reports about itself. Reference: DistributedDataParallel._get_ddp_logging_data().
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace ddp {

/// Facts and times of one wrapper on this rank. Times are of the last measured step: the first ten and then one in a
/// hundred are measured; zero before the first. The averages are over all measured steps.
struct DdpLoggingData {
  /// Durations of one step.
  struct Times {
    std::chrono::nanoseconds forward{};        ///< the wrapped model's forward
    std::chrono::nanoseconds backward{};       ///< from the end of the forward to the last gradient
    std::chrono::nanoseconds communication{};  ///< from the first bucket's start to the last one's end
    std::chrono::nanoseconds overlap{};        ///< how long backward and communication ran at the same time
  };

  std::string module_name{};            ///< of the wrapped model
  std::string backend{};                ///< as GroupHandle::backend()
  std::string comm_hook{};              ///< "" for the default all-reduce
  int rank = 0;                         ///< this process, 0 … world_size-1
  int world_size = 1;                   ///< number of ranks in the group
  int64_t iteration = 0;                ///< number of synchronised steps that have begun
  int64_t parameter_tensors = 0;        ///< number of parameters that are reduced
  int64_t parameter_bytes = 0;          ///< their bytes
  int64_t bucket_cap_bytes = 0;         ///< in use now
  bool bucket_cap_settled = true;       ///< false while an automatic bucket size is being measured
  std::vector<int64_t> bucket_bytes{};  ///< the buckets in use, in the order of their reduction
  bool has_rebuilt_buckets = false;     ///< whether the buckets follow the order in which gradients become ready
  /// How often a bucket got new memory because the program still held gradients of an earlier step in its memory.
  int64_t renewed_buckets = 0;
  bool find_unused_parameters = false;           ///< as DdpOptions
  bool static_graph = false;                     ///< as DdpOptions
  bool can_set_static_graph = false;             ///< whether static_graph may be set, because the graph has not changed
                                                 ///< so far
  bool gradient_as_bucket_view = false;          ///< as DdpOptions
  bool broadcast_buffers = false;                ///< as DdpOptions
  std::vector<std::string> unused_parameters{};  ///< of the last step, if the wrapper looks for them
  Times last{};                                  ///< of the last measured step
  Times average{};                               ///< over all measured steps
  std::string error{};                           ///< why a step failed, or ""

  /// All fields as a text of several lines.
  std::string table() const;
};

}  // namespace ddp
