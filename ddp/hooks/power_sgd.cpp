#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linalg_qr.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <optional>
#include <random>
#include <stdexcept>
#include <unordered_map>
#include <utility>
#include <vector>

#include "comm/core/graph_capture.h"
#include "comm/group/stream_use.h"
#include "ddprun/ddp/comm_hooks.h"

namespace ddp {
namespace {

// While the object exists, work is queued on `stream` (created at the first use), after the work of the current stream.
// Does nothing on the CPU.
class OnSideStream {
 public:
  OnSideStream(std::optional<c10::Stream>& stream, const at::Tensor& used) : guard_(begin(stream, used)) {}

 private:
  static std::optional<c10::Stream> begin(std::optional<c10::Stream>& stream, const at::Tensor& used) {
    const c10::Device device = used.device();
    const auto current = detail::current_stream(device);
    if (!current) return std::nullopt;
    if (!stream) stream = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
    c10::Event reached(device.type());
    reached.record(*current);
    reached.block(*stream);
    detail::record_stream(used, *stream);
    return stream;
  }

  c10::OptionalStreamGuard guard_;
};

// numpy.random.RandomState(seed).randint(1_000_000_000), which gives Python's hook its seeds: MT19937, low bits, and
// another draw when they are too large.
class SeedSequence {
 public:
  explicit SeedSequence(uint32_t seed) : random_(seed) {}
  uint64_t next() {
    constexpr uint64_t kBound = 1'000'000'000;
    constexpr uint64_t kMask = (uint64_t{1} << 30) - 1;
    for (;;) {
      const uint64_t value = random_() & kMask;
      if (value < kBound) return value;
    }
  }

 private:
  std::mt19937 random_;
};

void gram_schmidt(const at::Tensor& matrices, double epsilon) {
  const int64_t columns = matrices.size(2);
  for (int64_t i = 0; i < columns; ++i) {
    at::Tensor column = matrices.narrow(2, i, 1);
    at::Tensor norm = at::linalg_vector_norm(column, 2, {1}, /*keepdim=*/true);
    if (epsilon != 0) norm = norm.add(epsilon);
    column.div_(norm);
    if (i + 1 == columns) break;
    at::Tensor rest = matrices.narrow(2, i + 1, columns - i - 1);
    rest.sub_(column.mul(rest).sum({1}, /*keepdim=*/true).mul(column));
  }
}

// Makes the columns of each (rows, rank) matrix orthonormal, in place.
void orthogonalize(at::Tensor matrices, double epsilon) {
  const int64_t rank = matrices.size(2);
  const bool is_half = matrices.scalar_type() == at::kHalf || matrices.scalar_type() == at::kBFloat16;
  if (rank <= 2 || is_half) {
    gram_schmidt(matrices, epsilon);
  } else {
    at::Tensor r = at::empty({matrices.size(0), rank, rank}, matrices.options());
    at::linalg_qr_out(matrices, r, matrices);
  }
}

}  // namespace

class PowerSgdState {
 public:
  PowerSgdState(GroupHandle group, const PowerSgdOptions& options)
      : group_(std::move(group)),
        options_(options),
        before_start_(hooks::all_reduce(group_)),
        seeds_(options.random_seed) {
    const std::string begin = who(group_.info()) + ": power_sgd: ";
    if (options_.matrix_approximation_rank < 1)
      throw std::invalid_argument(begin + "matrix_approximation_rank must be at least 1");
    if ((options_.use_error_feedback || options_.warm_start) && options_.start_iteration <= 1) {
      throw std::invalid_argument(begin +
                                  "Expect `start_iteration` > 1 if `use_error_feedback` or `warm_start` is enabled, "
                                  "because PowerSGD can only be applied after the first two iterations in DDP.");
    }
  }

  TensorFuture reduce(GradientBucket& bucket) {
    const bool last = bucket.is_last();
    if (iteration_ < options_.start_iteration || !options_.warm_start || !memories_.contains(bucket.index())) {
      detail::refuse_capture(who(group_.info()) + ": power_sgd",
                             "a replay would repeat this step forever. Capture after start_iteration and one step "
                             "with compression, with warm_start");
    }
    if (iteration_ < options_.start_iteration) {
      if (last) ++iteration_;
      return before_start_(bucket);
    }
    const at::NoGradGuard no_grad;
    const OnSideStream on_side(side_stream_, bucket.buffer());
    compress(bucket);
    if (last) ++iteration_;
    return completed_future(bucket.buffer());
  }

  const PowerSgdStatistics& statistics() const { return statistics_; }

 private:
  // What the compression of a bucket keeps from step to step.
  struct Memory {
    at::Tensor error;
    at::Tensor p;
    at::Tensor q;
  };
  // Matrices of one shape that are compressed together, as (batch, n, m).
  struct Group {
    at::Tensor matrices;
    std::vector<at::Tensor> originals;  // empty: `matrices` is the gradient itself
    at::Tensor p;
    at::Tensor q;
  };

  void sum_over_ranks(const at::Tensor& tensor) { all_reduce_future(tensor, group_)->waitAndThrow(); }

  int64_t rank_for(int64_t n, int64_t m) const { return std::min({n, m, options_.matrix_approximation_rank}); }

  // Sorts a bucket's gradients into those worth compressing, as matrices, and the others.
  void divide(const std::vector<at::Tensor>& gradients, std::vector<at::Tensor>& matrices,
              std::vector<at::Tensor>& others) {
    for (const at::Tensor& gradient : gradients) {
      if (gradient.numel() == 0) continue;
      const at::Tensor matrix = gradient.dim() == 0 ? gradient.view({1, 1}) : gradient.view({gradient.size(0), -1});
      const int64_t n = matrix.size(0);
      const int64_t m = matrix.size(1);
      const int64_t compressed = (n + m) * rank_for(n, m);
      const bool worth = static_cast<double>(compressed) * options_.min_compression_rate < static_cast<double>(n * m);
      statistics_.before += n * m;
      statistics_.after += worth ? compressed : n * m;
      (worth ? matrices : others).push_back(worth ? matrix : gradient);
    }
  }

  // Shapes in the order in which they first appear.
  std::vector<Group> group_by_shape(const std::vector<at::Tensor>& matrices) const {
    std::vector<std::vector<at::Tensor>> by_shape;
    for (const at::Tensor& matrix : matrices) {
      const auto found =
          std::ranges::find_if(by_shape, [&](const auto& same) { return same.front().sizes() == matrix.sizes(); });
      if (found == by_shape.end()) {
        by_shape.push_back({matrix});
      } else {
        found->push_back(matrix);
      }
    }
    std::vector<Group> groups;
    for (const auto& same : by_shape) {
      if (options_.batch_tensors_with_same_shape && same.size() > 1) {
        groups.push_back({.matrices = at::stack(same), .originals = same, .p = {}, .q = {}});
        continue;
      }
      for (const at::Tensor& matrix : same)
        groups.push_back({.matrices = matrix.unsqueeze(0), .originals = {}, .p = {}, .q = {}});
    }
    return groups;
  }

  // Returns whether the contents of Q are new memory.
  bool place_factors(std::vector<Group>& groups, Memory& memory, const at::TensorOptions& options) const {
    int64_t p_size = 0;
    int64_t q_size = 0;
    for (const Group& group : groups) {
      const int64_t rank = rank_for(group.matrices.size(1), group.matrices.size(2));
      p_size += group.matrices.size(0) * group.matrices.size(1) * rank;
      q_size += group.matrices.size(0) * group.matrices.size(2) * rank;
    }
    const bool is_new = !memory.p.defined();
    if (is_new) {
      memory.p = at::empty({p_size}, options);
      memory.q = at::empty({q_size}, options);
    }
    int64_t p_offset = 0;
    int64_t q_offset = 0;
    for (Group& group : groups) {
      const int64_t batch = group.matrices.size(0);
      const int64_t n = group.matrices.size(1);
      const int64_t m = group.matrices.size(2);
      const int64_t rank = rank_for(n, m);
      group.p = memory.p.narrow(0, p_offset, batch * n * rank).view({batch, n, rank});
      group.q = memory.q.narrow(0, q_offset, batch * m * rank).view({batch, m, rank});
      p_offset += batch * n * rank;
      q_offset += batch * m * rank;
    }
    return is_new;
  }

  void compress(GradientBucket& bucket) {
    const at::Tensor buffer = bucket.buffer();
    Memory& memory = memories_[bucket.index()];
    at::Tensor with_error;
    if (options_.use_error_feedback) {
      if (memory.error.defined()) {
        buffer.add_(memory.error);
      } else {
        memory.error = at::zeros({buffer.numel()}, buffer.options());
      }
      with_error = buffer.detach().clone();
    }

    std::vector<at::Tensor> matrices;
    std::vector<at::Tensor> others;
    divide(bucket.gradients(), matrices, others);
    std::vector<at::Tensor> flat_others;
    for (const at::Tensor& other : others) flat_others.push_back(other.view({-1}));
    const at::Tensor rest = flat_others.empty() ? at::empty({0}, buffer.options()) : at::cat(flat_others);
    std::vector<Group> groups = group_by_shape(matrices);

    const bool randomize = place_factors(groups, memory, buffer.options());
    std::optional<at::Generator> generator;
    if (randomize) generator = at::detail::createCPUGenerator(seeds_.next());
    for (Group& group : groups) {
      if (randomize) {
        const auto on_cpu = at::TensorOptions().dtype(buffer.scalar_type());
        group.q.copy_(at::randn(group.q.sizes(), generator, on_cpu));
      }
      orthogonalize(group.q, options_.orthogonalization_epsilon);
    }
    for (Group& group : groups) at::bmm_out(group.p, group.matrices, group.q);

    sum_over_ranks(rest);
    rest.div_(group_.size());
    int64_t offset = 0;
    for (const at::Tensor& other : others) {
      other.copy_(rest.narrow(0, offset, other.numel()).view_as(other));
      offset += other.numel();
    }

    sum_over_ranks(memory.p);  // not divided: the columns are made orthonormal next
    for (Group& group : groups) orthogonalize(group.p, options_.orthogonalization_epsilon);
    for (Group& group : groups) at::bmm_out(group.q, group.matrices.transpose(1, 2), group.p);

    sum_over_ranks(memory.q);
    memory.q.div_(group_.size());
    for (Group& group : groups) {
      at::bmm_out(group.matrices, group.p, group.q.transpose(1, 2));
      for (size_t i = 0; i < group.originals.size(); ++i)
        group.originals[i].copy_(group.matrices[static_cast<int64_t>(i)]);
    }

    if (options_.use_error_feedback) memory.error = with_error.sub(buffer);
    if (!options_.warm_start) memory.p = memory.q = at::Tensor();
  }

  const GroupHandle group_;
  const PowerSgdOptions options_;
  const CommHook before_start_;
  SeedSequence seeds_;
  std::unordered_map<size_t, Memory> memories_;
  // The same stream in all steps: tensors that are kept between steps are allocated, used and freed only on it.
  std::optional<c10::Stream> side_stream_;
  int64_t iteration_ = 0;
  PowerSgdStatistics statistics_;
};

std::shared_ptr<PowerSgdState> make_power_sgd_state(const GroupHandle& group, const PowerSgdOptions& options) {
  return std::make_shared<PowerSgdState>(group, options);
}

PowerSgdStatistics statistics(const PowerSgdState& state) {
  return state.statistics();
}

CommHook hooks::power_sgd(std::shared_ptr<PowerSgdState> state) {
  return named_hook("power_sgd", [state = std::move(state)](GradientBucket& bucket) { return state->reduce(bucket); });
}

}  // namespace ddp
