// Internal: rules for DdpOptions as a whole: which values are compatible, which the ranks compare, which the logging
// data contains. The code of each option's effect is elsewhere.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <ddprun/comm/ddp_options.h>
#include <ddprun/comm/logging_data.h>
#include <ddprun/comm/process_group.h>

#include "comm/reducer/reduced_model.h"

namespace ddp::detail {

/// Cap of the bucket that becomes ready first.
int64_t first_bucket_bytes(const DdpOptions& options);

/// The largest cap of a bucket.
int64_t largest_bucket_bytes(const DdpOptions& options);

/// The caps in the order in which buckets become ready; the last one holds for all further buckets.
std::vector<size_t> bucket_limits(const DdpOptions& options);

/// Whether buffers are made equal with the model's parameters, by construction.
bool syncs_buffers_at_start(const DdpOptions& options);

/// Whether buffers are made equal before forwards, and at the end of join().
bool syncs_buffers_in_forward(const DdpOptions& options);

/// Throws std::invalid_argument, beginning with `rank`, for options that are not supported, or not in combination.
void check_options(const DdpOptions& options, const std::string& rank);

/// Whether the gradients of `ranks` ranks are copied into buckets together: what the option says, else what is faster,
/// where that changes no bits: c10d then divides instead of multiplying by the reciprocal.
bool copies_in_batches(const DdpOptions& options, const ReducedModel& model, int ranks);

/// What of the options and the model CpuReducer does not do, for messages; "" if it does everything.
std::string unsupported_by_cpu_reducer(const DdpOptions& options, const ReducedModel& model);

/// The option that is set and that Python's DDP does not have, or null.
const char* option_not_in_python(const DdpOptions& options);

/// A line for each option that all ranks must have alike.
std::vector<std::string> options_to_compare(const DdpOptions& options);

/// What is known before the first step.
DdpLoggingData logging_data(const DdpOptions& options, const ReducedModel& model, const GroupHandle& group);

}  // namespace ddp::detail
