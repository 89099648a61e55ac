#include "ddprun/ddp/apex_settings.h"

#include <limits>
#include <stdexcept>

#include "comm/group/multiply.h"

namespace ddp {
namespace {

constexpr int64_t kBytesPerElement = 4;  // apex counts elements; models usually have float32 parameters
constexpr int64_t kOnePiece = std::numeric_limits<int64_t>::max();

CommHook apex_hook(const ApexSettings& settings, const GroupHandle& group) {
  const double predivide = settings.gradient_predivide_factor;
  const double after = settings.gradient_average ? predivide / group.size() : 1.0;
  return named_hook("apex", [=, always_fp32 = settings.allreduce_always_fp32,
                             retained = settings.retain_allreduce_buffers](GradientBucket& bucket) {
    const at::Tensor buffer = bucket.buffer();
    const at::Tensor sum = always_fp32 ? buffer.to(at::kFloat) : buffer;
    multiply(sum, 1.0 / predivide);
    const size_t index = bucket.index();
    if (retained && retained->size() <= index) retained->resize(index + 1);
    return then(all_reduce_future(sum, group), [=](const at::Tensor& reduced) {
      multiply(reduced, after);
      if (retained) (*retained)[index] = reduced;
      if (!reduced.is_same(buffer)) buffer.copy_(reduced);
      return buffer;
    });
  });
}

}  // namespace

DdpOptions apex_options(const ApexSettings& settings, const GroupHandle& group, DdpOptions others) {
  const std::string begin = who(group.info()) + ": apex_options: ";
  if (settings.message_size < 1) throw std::invalid_argument(begin + "message_size must be positive");
  if (settings.gradient_predivide_factor <= 0)
    throw std::invalid_argument(begin + "gradient_predivide_factor must be positive");
  if (settings.delay_allreduce && !settings.allreduce_trigger_params.empty())
    throw std::invalid_argument(begin + "allreduce_trigger_params is only valid without delay_allreduce");
  if (others.comm_hook)
    throw std::invalid_argument(begin + "apex's settings cannot be combined with another comm_hook");
  others.bucket_cap_bytes = settings.delay_allreduce ? kOnePiece : settings.message_size * kBytesPerElement;
  others.first_bucket_bytes = others.bucket_cap_bytes.bytes();
  others.bucket_ends = settings.allreduce_trigger_params;
  const bool plain = settings.gradient_average && settings.gradient_predivide_factor == 1.0 &&
                     !settings.allreduce_always_fp32 && !settings.retain_allreduce_buffers;
  if (!plain) others.comm_hook = apex_hook(settings, group);
  return others;
}

}  // namespace ddp
