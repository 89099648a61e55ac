#include "optim/elementwise/block_elementwise.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <type_traits>

#include "optim/elementwise/kernels.h"
#include "optim/elementwise/square_roots.h"
#include "optim/parallel_parts.h"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace ddp::optim {
namespace {

// With blocks of this size, all operands of an update fit into the processor's first-level cache.
constexpr size_t kBlock = 512;
constexpr size_t kMaxOperands = 16;
constexpr size_t kMaxTemporaries = 6;
// A tensor of at least this many bytes does not stay in a cache until the next step.
constexpr size_t kMinStreamedBytes = size_t{1} << 24;

// Like memcpy(), but does not read the target's memory first.
void copy_non_temporal(void* to, const void* from, size_t bytes) {
  auto* target = static_cast<char*>(to);
  const auto* source = static_cast<const char*>(from);
#ifdef __SSE2__
  const size_t head = std::min(bytes, (16 - reinterpret_cast<uintptr_t>(target) % 16) % 16);
  std::memcpy(target, source, head);
  target += head, source += head, bytes -= head;
  for (; bytes >= 16; target += 16, source += 16, bytes -= 16) {
    _mm_stream_si128(reinterpret_cast<__m128i*>(target), _mm_loadu_si128(reinterpret_cast<const __m128i*>(source)));
  }
  _mm_sfence();  // before other threads read the target
#endif
  std::memcpy(target, source, bytes);
}

// The temporary operands of one thread.
template <typename T>
using Scratch = std::array<std::array<T, kBlock>, kMaxTemporaries>;

template <typename T>
class BlockElementwise final : public Elementwise {
 public:
  // `total` is the number of elements of the whole tensor.
  BlockElementwise(Scratch<T>& scratch, const std::vector<T*>& bases, size_t total)
      : scratch_(scratch), bases_(bases), kernels_(kernels<T>()), is_large_(total * sizeof(T) >= kMinStreamedBytes) {}

  // Selects the block [begin, begin + size). ATen would compute its first `vectorised` elements with vector
  // instructions.
  void move_to(size_t begin, size_t size, size_t vectorised) {
    std::transform(bases_.begin(), bases_.end(), operands_.begin(),
                   [&](T* base) { return base == nullptr ? nullptr : base + begin; });
    count_ = bases_.size();
    size_ = size;
    vectorised_ = vectorised;
  }

  Operand temporary() override {
    operands_.at(count_) = scratch_.at(count_ - bases_.size()).data();
    return Operand{count_++};
  }
  void copy(Operand to, Operand a) override {
    if (to == a) return;
    const bool is_scratch = static_cast<size_t>(to) >= bases_.size();
    if (is_large_ && !is_scratch) return copy_non_temporal(at(to), at(a), size_ * sizeof(T));
    std::memcpy(at(to), at(a), size_ * sizeof(T));
  }
  void neg(Operand to, Operand a) override { kernels_.negate(at(to), at(a), size_); }
  void abs(Operand to, Operand a) override { kernels_.absolute(at(to), at(a), size_); }
  void sign(Operand to, Operand a) override { kernels_.sign(at(to), at(a), size_); }
  void sqrt(Operand to, Operand a) override {
    if constexpr (std::is_same_v<T, BFloat16Bits>) {
      kernels_.square_root(at(to), at(a), size_);
    } else {
      take_square_roots(at(to), at(a), size_);
    }
  }
  void rsqrt(Operand to, Operand a) override { kernels_.rsqrt(at(to), at(a), size_, vectorised_); }
  void reciprocal(Operand to, Operand a) override { kernels_.reciprocal(at(to), at(a), size_); }
  void mul(Operand to, Operand a, Operand b) override { kernels_.multiply(at(to), at(a), at(b), size_); }
  void div(Operand to, Operand a, Operand b) override { kernels_.divide(at(to), at(a), at(b), size_); }
  void maximum(Operand to, Operand a, Operand b) override { kernels_.maximum(at(to), at(a), at(b), size_); }
  void add(Operand to, Operand a, const UpdateScalar& number) override {
    kernels_.add_number(at(to), at(a), number.value, size_);
  }
  void mul(Operand to, Operand a, const UpdateScalar& number) override {
    kernels_.multiply_number(at(to), at(a), number.value, size_);
  }
  void mul(Operand to, const UpdateScalar& numbers, Operand a) override { mul(to, a, numbers); }
  void div(Operand to, Operand a, const UpdateScalar& number) override {
    kernels_.divide_number(at(to), at(a), number.value, size_);
  }
  void add(Operand to, Operand a, Operand b, const UpdateScalar& alpha) override {
    kernels_.add_scaled(at(to), at(a), at(b), alpha.value, size_, vectorised_);
  }
  void addcmul(Operand to, Operand a, Operand b, Operand c, double value) override {
    kernels_.addcmul(at(to), at(a), at(b), at(c), value, size_);
  }
  void addcdiv(Operand to, Operand a, Operand b, Operand c, const UpdateScalar& value) override {
    kernels_.addcdiv(at(to), at(a), at(b), at(c), value.value, size_);
  }
  void lerp(Operand to, Operand a, Operand end, const UpdateScalar& weight) override {
    kernels_.lerp(at(to), at(a), at(end), weight.value, size_);
  }
  void clamp(Operand to, Operand a, double lowest, double highest) override {
    kernels_.clamp(at(to), at(a), lowest, highest, size_);
  }
  void choose_by_sign(Operand to, Operand a, double above, double below) override {
    kernels_.choose_by_sign(at(to), at(a), above, below, size_);
  }
  void zero_where(Operand to, Operand a, Operand key, double number) override {
    kernels_.zero_where(at(to), at(a), at(key), number, size_);
  }

 private:
  T* at(Operand operand) const { return operands_[static_cast<size_t>(operand)]; }

  Scratch<T>& scratch_;
  const std::vector<T*>& bases_;
  const Kernels<T>& kernels_;
  bool is_large_;
  std::array<T*, kMaxOperands> operands_{};
  size_t count_ = 0;
  size_t size_ = 0;
  size_t vectorised_ = 0;
};

template <typename T>
void update_part(const std::vector<T*>& bases, size_t total, size_t begin, size_t end,
                 const std::function<void(Elementwise&)>& update) {
  // Each thread has one, since constructing it takes more time than a small update.
  static thread_local const auto scratch = std::make_unique<Scratch<T>>();
  BlockElementwise<T> elementwise(*scratch, bases, total);
  const size_t vectorised_end = begin + (end - begin) / kVectorStep * kVectorStep;
  for (size_t at = begin; at < end; at += kBlock) {
    const size_t size = std::min(kBlock, end - at);
    elementwise.move_to(at, size, std::clamp(vectorised_end, at, at + size) - at);
    update(elementwise);
  }
}

template <typename T>
void update_as(const std::vector<at::Tensor>& tensors, const std::function<void(Elementwise&)>& update) {
  std::vector<T*> bases;
  for (const auto& tensor : tensors) {
    bases.push_back(tensor.defined() ? static_cast<T*>(tensor.mutable_data_ptr()) : nullptr);
  }
  const int64_t total = tensors.front().numel();
  run_in_parallel_parts(total, [&](int64_t begin, int64_t end) {
    update_part(bases, static_cast<size_t>(total), static_cast<size_t>(begin), static_cast<size_t>(end), update);
  });
}

}  // namespace

bool can_update_by_blocks(const std::vector<at::Tensor>& tensors) {
  const at::Tensor& first = tensors.front();
  const auto dtype = first.scalar_type();
  if (dtype != at::kFloat && dtype != at::kDouble && dtype != at::kBFloat16) return false;
  return std::all_of(tensors.begin(), tensors.end(), [&](const at::Tensor& tensor) {
    return !tensor.defined() ||
           (tensor.is_cpu() && tensor.scalar_type() == dtype && tensor.is_non_overlapping_and_dense() &&
            tensor.sizes() == first.sizes() && tensor.strides() == first.strides() && !tensor.is_neg());
  });
}

void update_by_blocks(const std::vector<at::Tensor>& tensors, const std::function<void(Elementwise&)>& update) {
  switch (tensors.front().scalar_type()) {
    case at::kFloat:
      return update_as<float>(tensors, update);
    case at::kDouble:
      return update_as<double>(tensors, update);
    default:
      return update_as<BFloat16Bits>(tensors, update);
  }
}

}  // namespace ddp::optim
