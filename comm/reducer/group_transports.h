// Internal: sums of gradient buckets by the group itself.
#pragma once

#include <memory>

#include "comm/reducer/bucket_transport.h"
#include "comm/reducer/failure_note.h"

namespace ddp::detail {

/// The sum of `bucket` over `group`, in place, by plan_all_reduce()'s plan. A closed group says so in start().
std::shared_ptr<BucketTransport> group_transport(const GroupHandle& group, const at::Tensor& bucket,
                                                 std::shared_ptr<FailureNote> note);

}  // namespace ddp::detail
