// What DistributedDataParallel can tell about itself. Reference: DistributedDataParallel._get_ddp_logging_data().
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace ddp {

/// Facts and times of one wrapper on this rank. Times are of the last measured step: the first ten and then one in a
/// hundred are measured; zero when there is none yet. The averages are over all measured steps.
struct DdpLoggingData {
  struct Times {
    std::chrono::nanoseconds forward{};
    std::chrono::nanoseconds backward{};       ///< from the end of the forward to the last gradient
    std::chrono::nanoseconds communication{};  ///< from the first bucket's start to the last one's end
    std::chrono::nanoseconds overlap{};        ///< how long both went on at once
  };

  std::string module_name{};
  std::string backend{};
  std::string comm_hook{};  ///< "" for the default all-reduce
  int rank = 0;
  int world_size = 1;
  int64_t iteration = 0;  ///< synchronised steps begun
  int64_t parameter_tensors = 0;
  int64_t parameter_bytes = 0;
  int64_t bucket_cap_bytes = 0;         ///< in use now
  bool bucket_cap_settled = true;       ///< false while an automatic bucket size is being measured
  std::vector<int64_t> bucket_bytes{};  ///< the buckets in use, in the order of their reduction
  bool has_rebuilt_buckets = false;
  /// How often a bucket got new memory because the program held gradients of an earlier step in the old one.
  int64_t renewed_buckets = 0;
  bool find_unused_parameters = false;
  bool static_graph = false;
  bool can_set_static_graph = false;  ///< the graph has not changed so far, so static_graph may be set
  bool gradient_as_bucket_view = false;
  bool broadcast_buffers = false;
  std::vector<std::string> unused_parameters{};  ///< of the last step, as far as the wrapper looks for them
  Times last{};
  Times average{};
  std::string error{};  ///< what made a step fail, or ""

  /// All of it as lines of text for people.
  std::string table() const;
};

}  // namespace ddp
